// Shows the API definition by Swagger UI; requests that are tried out carry the visitor's token.
const place = document.getElementById("reference");

async function readToken() {
  if (!place.dataset.token) return "";
  const answer = await fetch(place.dataset.token);
  return answer.ok ? answer.text() : "";
}

window.SwaggerUIBundle({
  url: place.dataset.definition,
  domNode: place,
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
  requestInterceptor: async (request) => {
    const token = await readToken();
    if (token && !request.loadSpec) request.headers.Authorization = `Bearer ${token}`;
    return request;
  },
});
