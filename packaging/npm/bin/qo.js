#!/usr/bin/env node
// Starts the program for this platform and behaves like it: same standard streams, signals and exit code.
"use strict";

const { spawn } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

const platform = `${process.platform}-${process.arch}`;
const name = process.platform === "win32" ? "qo.exe" : "qo";

function findProgram() {
  const own = path.join(__dirname, "..", "platforms", platform, name);
  if (fs.existsSync(own)) return own;
  // The program for another platform can be an optional dependency: a package `qo-cli-PLATFORM` with the program at its root.
  try {
    return require.resolve(`qo-cli-${platform}/${name}`);
  } catch {
    return null;
  }
}

const program = findProgram();
if (program === null) {
  console.error(`qo: this package contains no program for ${platform}`);
  process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => {
  console.error(`qo: cannot run ${program}: ${error.message}`);
  process.exit(1);
});

// A terminal sends Ctrl-C to both processes, so the launcher ignores it. Other senders know only the launcher.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));

child.on("exit", (code, signal) => {
  process.exit(signal === null ? code : 128 + os.constants.signals[signal]);
});
