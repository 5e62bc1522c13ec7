//! A compiled program, ready to be instantiated many times.

use std::fmt;

use wasmtime::component::{Component, Linker as ComponentLinker, types::ComponentItem};
use wasmtime::{Engine, ExternType, InstancePre, Linker, Module};
use wasmtime_wasi::p2::bindings::CommandPre;

use crate::error::BadProgram;
use crate::sandbox::State;

/// The preamble of a WebAssembly binary.
const MAGIC: &[u8] = b"\0asm";
/// Version and layer of a core module, after the magic.
const MODULE: &[u8] = &[1, 0, 0, 0];
/// The layer of a component, after its version.
const COMPONENT_LAYER: &[u8] = &[1, 0];

/// The export of a preview 2 command.
const RUN: &str = "wasi:cli/run@0.2.";

/// A compiled program. Clones share the machine code.
#[derive(Clone)]
pub struct Program {
    pub(crate) code: Code,
    code_bytes: usize,
}

#[derive(Clone)]
pub(crate) enum Code {
    /// A preview 1 module.
    Module(InstancePre<State>),
    /// A preview 2 component.
    Component(CommandPre<State>),
}

impl Program {
    /// Size of the machine code.
    pub fn code_bytes(&self) -> usize {
        self.code_bytes
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.code {
            Code::Module(_) => "module",
            Code::Component(_) => "component",
        };
        f.debug_struct("Program")
            .field("kind", &kind)
            .field("code_bytes", &self.code_bytes)
            .finish()
    }
}

/// What programs may import.
pub(crate) struct Linkers {
    module: Linker<State>,
    component: ComponentLinker<State>,
}

impl Linkers {
    pub(crate) fn new(engine: &Engine) -> wasmtime::Result<Self> {
        let mut module = Linker::new(engine);
        wasmtime_wasi::p1::add_to_linker_async(&mut module, |state: &mut State| state.preview1())?;
        let mut component = ComponentLinker::new(engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut component)?;
        Ok(Self { module, component })
    }

    /// Compiles a binary. This takes a while and must not happen on a thread of the async runtime.
    pub(crate) fn compile(&self, engine: &Engine, bytes: &[u8]) -> Result<Program, BadProgram> {
        let Some(rest) = bytes.strip_prefix(MAGIC) else {
            return Err(BadProgram::NotWasm { hint: hint(bytes) });
        };
        let (code, range) = if rest.starts_with(MODULE) {
            let module = Module::new(engine, bytes).map_err(|error| invalid(&error))?;
            check_module(&module)?;
            let range = module.image_range();
            let instance = self
                .module
                .instantiate_pre(&module)
                .map_err(|error| invalid(&error))?;
            (Code::Module(instance), range)
        } else if rest.get(2..4) == Some(COMPONENT_LAYER) {
            let component = Component::new(engine, bytes).map_err(|error| invalid(&error))?;
            check_component(engine, &component)?;
            let range = component.image_range();
            let instance = self.component.instantiate_pre(&component);
            let command = instance
                .and_then(CommandPre::new)
                .map_err(|error| invalid(&error))?;
            (Code::Component(command), range)
        } else {
            let what = "of an unknown version of WebAssembly".to_owned();
            return Err(BadProgram::WrongKind { what });
        };
        Ok(Program {
            code,
            code_bytes: (range.end as usize).saturating_sub(range.start as usize),
        })
    }
}

impl fmt::Debug for Linkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Linkers").finish_non_exhaustive()
    }
}

fn invalid(error: &wasmtime::Error) -> BadProgram {
    BadProgram::Invalid {
        detail: one_line(&format!("{error:#}")),
    }
}

/// A module is a command if it exports `_start`.
fn check_module(module: &Module) -> Result<(), BadProgram> {
    let what = match module.get_export("_start") {
        Some(ExternType::Func(start))
            if start.params().len() == 0 && start.results().len() == 0 =>
        {
            return Ok(());
        }
        Some(_) => "its export _start is not a function without parameters and results",
        None if module.get_export("_initialize").is_some() => {
            "it is a reactor, a library that exports _initialize; build it as a program with a main function"
        }
        None => "it has no export _start; build it for the target wasm32-wasip1",
    };
    Err(BadProgram::WrongKind {
        what: what.to_owned(),
    })
}

/// A component is a command if it exports the interface `wasi:cli/run` of preview 2.
fn check_component(engine: &Engine, component: &Component) -> Result<(), BadProgram> {
    let component_type = component.component_type();
    let mut names = Vec::new();
    for (name, item) in component_type.exports(engine) {
        if name.starts_with(RUN) && matches!(item.ty, ComponentItem::ComponentInstance(_)) {
            return Ok(());
        }
        names.push(name);
    }
    let exports = |prefix: &str| names.iter().any(|name| name.starts_with(prefix));
    let what = if exports("wasi:http/incoming-handler@") || exports("wasi:http/handler@") {
        "it serves HTTP requests (wasi:http)".to_owned()
    } else if exports("wasi:cli/run@") {
        "its version of wasi:cli is not supported; build it for the target wasm32-wasip2".to_owned()
    } else if names.is_empty() {
        "it is a component without exports".to_owned()
    } else {
        format!(
            "it is a component that exports {}, not wasi:cli/run",
            one_line(&names.join(", "))
        )
    };
    Err(BadProgram::WrongKind { what })
}

/// What some other file probably is.
fn hint(bytes: &[u8]) -> Option<&'static str> {
    let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace());
    let text = start.map_or(bytes, |start| &bytes[start..]);
    if bytes.is_empty() {
        Some("it is empty")
    } else if text.starts_with(b"(module")
        || text.starts_with(b"(component")
        || text.starts_with(b";;")
    {
        Some("it is WebAssembly in text form: convert it with `wasm-tools parse` or `wat2wasm`")
    } else if bytes.starts_with(b"\x7fELF") {
        Some("it is a program for Linux: build it for the target wasm32-wasip1")
    } else {
        None
    }
}

/// Text from a foreign binary, without control characters and of bounded length.
pub(crate) fn one_line(text: &str) -> String {
    const MAX_CHARS: usize = 500;
    let mut shown: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_CHARS)
        .collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        shown.push('…');
    }
    shown
}
