"use strict";

// A token that is given here stays in this page: it is gone when the page is left.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#api",
  deepLinking: true,
  displayOperationId: true,
  displayRequestDuration: true,
  persistAuthorization: false,
  tryItOutEnabled: true,
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
});
