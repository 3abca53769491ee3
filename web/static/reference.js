// Shows the API definition by Swagger UI; requests that are tried out carry the visitor's token.
const place = document.getElementById("reference");

const dark = matchMedia("(prefers-color-scheme: dark)");
const setScheme = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", setScheme);
setScheme();

async function readToken() {
  if (!place.dataset.token) return "";
  const answer = await fetch(place.dataset.token);
  return answer.ok ? answer.text() : "";
}

// Swagger UI would ask the authorization service for its own definition, which the policy of this
// page forbids; the visitor's token is there already.
async function readDefinition() {
  const definition = await (await fetch(place.dataset.definition)).json();
  const schemes = definition.components?.securitySchemes ?? {};
  for (const [name, scheme] of Object.entries(schemes))
    if (scheme.type === "openIdConnect") delete schemes[name];
  return definition;
}

window.SwaggerUIBundle({
  spec: await readDefinition(),
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
