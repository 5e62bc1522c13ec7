"use strict";
// Shows the OpenAPI document of this server. Text is only ever set as text, never as markup.

const el = (name, attributes = {}, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};

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
    several.forEach((part, place) => {
      if (place > 0) parts.push(schema.allOf ? " and " : " or ");
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
    value.description || "",
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
  if (op.description) article.append(el("p", {}, op.description));
  if (op.parameters && op.parameters.length > 0) {
    article.append(
      table(
        ["parameter", "in", "type", ""],
        op.parameters.map((p) => [el("code", {}, p.name), p.in, describe(p.schema), p.description || ""]),
      ),
    );
  }
  if (op.requestBody) article.append(el("p", { class: "quiet" }, "body"), table(["type", "schema"], content(op.requestBody)));
  const answers = Object.entries(op.responses).map(([status, answer]) => [
    el("code", {}, status),
    answer.description || "",
    content(answer).flatMap(([, schema]) => [...schema, " "]),
  ]);
  article.append(el("p", { class: "quiet" }, "answers"), table(["status", "", "schema"], answers));
  return article;
};

const show = (doc) => {
  document.getElementById("title").textContent = doc.info.title + " " + doc.info.version;
  document.getElementById("summary").textContent = doc.info.description || "";
  const contents = el("ul");
  const routes = document.getElementById("routes");
  for (const [path, item] of Object.entries(doc.paths)) {
    for (const [method, op] of Object.entries(item)) {
      contents.append(el("li", {}, el("a", { href: "#" + op.operationId }, method.toUpperCase() + " " + path)));
      routes.append(operation(method, path, op));
    }
  }
  document.getElementById("contents").append(contents);
  const schemas = document.getElementById("schemas");
  for (const [name, schema] of Object.entries(doc.components.schemas)) {
    const article = el("article", { id: "schema-" + name }, el("h3", {}, name), el("p", {}, schema.description || ""));
    const rows = properties(schema);
    if (rows.length > 0) article.append(table(["field", "type", "", ""], rows));
    else article.append(el("p", {}, ...describe(schema)));
    schemas.append(article);
  }
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
};

fetch("/v1/openapi.json")
  .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error("the server answered " + answer.status))))
  .then(show)
  .catch((error) => {
    document.getElementById("summary").textContent = "The document could not be shown: " + error.message;
  });
