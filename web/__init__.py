"""Web pages: the store in a browser, above `pipelines` and `auth`."""
