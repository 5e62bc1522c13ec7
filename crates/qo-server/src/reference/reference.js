"use strict";
// Shows the OpenAPI document of this server. Text is only ever set as text, never as markup.

const el = (name, attributes = {}, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};

// Descriptions mark code with backticks.
const prose = (text) => text.split("`").map((part, index) => (index % 2 === 1 ? el("code", {}, part) : part));

const refName = (schema) => schema.$ref.split("/").pop();

const describe = (schema) => {
  if (!schema) return ["anything"];
  if (schema.$ref) {
    const name = refName(schema);
    return [el("a", { href: "#schema-" + name }, name)];
  }
  const several = schema.oneOf || schema.anyOf || schema.allOf;
  if (several && several.length > 0) {
    const parts = [];
    several.forEach((part, index) => {
      if (index > 0) parts.push(schema.allOf ? " and " : " or ");
      parts.push(...describe(part));
    });
    return parts;
  }
  const types = [].concat(schema.type || "anything");
  if (types.includes("array")) return ["array of ", ...describe(schema.items)];
  const text = types.join(" or ") + (schema.format ? " (" + schema.format + ")" : "");
  return [schema.enum ? text + ": " + schema.enum.join(", ") : text];
};

const table = (head, rows) => {
  const body = rows.map((cells) => el("tr", {}, ...cells.map((cell) => el("td", {}, ...[].concat(cell)))));
  return el("table", {}, el("thead", {}, el("tr", {}, ...head.map((cell) => el("th", {}, cell)))), el("tbody", {}, ...body));
};

const properties = (schema) => {
  const own = schema.properties || {};
  const required = schema.required || [];
  const rows = Object.entries(own).map(([name, value]) => [
    el("code", {}, name),
    describe(value),
    required.includes(name) ? "required" : "",
    prose(value.description || ""),
  ]);
  for (const part of schema.allOf || []) rows.push(...properties(part));
  return rows;
};

const content = (holder) =>
  Object.entries(holder.content || {}).map(([type, value]) => [el("code", {}, type), describe(value.schema)]);

const operation = (method, path, op) => {
  const article = el("article", { id: op.operationId });
  article.append(
    el("h3", {}, el("span", { class: "method " + method }, method.toUpperCase()), el("span", { class: "path" }, path)),
    el("p", {}, el("strong", {}, op.summary || op.operationId), " ", el("span", { class: "scope" }, op["x-qo-access"] || "")),
  );
  if (op.description) article.append(el("p", {}, ...prose(op.description)));
  if (op.parameters && op.parameters.length > 0) {
    article.append(
      table(
        ["parameter", "in", "type", ""],
        op.parameters.map((p) => [el("code", {}, p.name), p.in, describe(p.schema), prose(p.description || "")]),
      ),
    );
  }
  if (op.requestBody) article.append(el("p", { class: "quiet" }, "body"), table(["type", "schema"], content(op.requestBody)));
  // The error responses are the same for all routes, so they are not listed.
  const responses = Object.entries(op.responses)
    .filter(([status]) => !status.endsWith("XX"))
    .map(([status, response]) => [
      el("code", {}, status),
      prose(response.description || ""),
      content(response).flatMap(([, schema]) => [...schema, " "]),
    ]);
  article.append(el("p", { class: "quiet" }, "responses"), table(["status", "", "schema"], responses));
  return article;
};

const show = (doc) => {
  document.getElementById("title").textContent = doc.info.title + " " + doc.info.version;
  document.getElementById("summary").replaceChildren(
    ...prose(doc.info.description || ""),
    " Any route may respond with 4XX or 5XX and a ",
    el("a", { href: "#schema-Problem" }, "Problem"),
    ".",
  );
  const contents = document.getElementById("contents");
  const routes = document.getElementById("routes");
  for (const tag of doc.tags) {
    const list = el("ul");
    contents.append(el("h2", {}, tag.description || tag.name), list);
    routes.append(el("h2", {}, tag.description || tag.name));
    for (const [path, item] of Object.entries(doc.paths)) {
      for (const [method, op] of Object.entries(item)) {
        if (!op.tags.includes(tag.name)) continue;
        list.append(el("li", {}, el("a", { href: "#" + op.operationId }, method.toUpperCase() + " " + path)));
        routes.append(operation(method, path, op));
      }
    }
  }
  const schemas = document.getElementById("schemas");
  for (const [name, schema] of Object.entries(doc.components.schemas)) {
    const article = el("article", { id: "schema-" + name }, el("h3", {}, name), el("p", {}, ...prose(schema.description || "")));
    const rows = properties(schema);
    if (rows.length > 0) article.append(table(["field", "type", "", ""], rows));
    else article.append(el("p", {}, ...describe(schema)));
    schemas.append(article);
  }
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
};

fetch("/v1/openapi.json")
  .then((response) => (response.ok ? response.json() : Promise.reject(new Error("the server responded with " + response.status))))
  .then(show)
  .catch((error) => {
    document.getElementById("summary").textContent = "Cannot show the document: " + error.message;
  });
