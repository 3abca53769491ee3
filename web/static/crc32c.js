// The CRC-32C of a file or a part of one, as eight hexadecimal digits.
const TABLE = Int32Array.from({ length: 256 }, (_, byte) => {
  let sum = byte;
  for (let bit = 0; bit < 8; bit += 1) sum = sum & 1 ? (sum >>> 1) ^ 0x82f63b78 : sum >>> 1;
  return sum;
});

export async function crc32c(blob) {
  let sum = -1;
  const reader = blob.stream().getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return (~sum >>> 0).toString(16).padStart(8, "0");
    for (let at = 0; at < value.length; at += 1) sum = (sum >>> 8) ^ TABLE[(sum ^ value[at]) & 255];
  }
}
