"""The blob stores: one module an engine, all behind `storage.protocols.BlobStore`."""
