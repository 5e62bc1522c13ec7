//! Binaries that are not programs.

use qo_wasi::{BadProgram, CompileError, Limits};

use crate::programs::hello;
use crate::support::{binary, refusal, sandbox, sandbox_with};

#[test]
fn other_files_are_not_webassembly() {
    let hint = |bytes: &[u8]| match refusal(bytes) {
        BadProgram::NotWasm { hint } => hint.unwrap_or_default(),
        other => panic!("{other:?}"),
    };
    assert_eq!(hint(b""), "it is empty");
    assert!(hint(b"(module)").contains("text form"));
    assert!(hint(b"\x7fELF\x02\x01\x01").contains("wasm32-wasip1"));
    assert_eq!(hint(b"#!/bin/sh\n"), "");
    assert_eq!(hint(&[0; 100]), "");
}

#[test]
fn damaged_binaries_are_refused() {
    let whole = binary(&hello());
    let sandbox = sandbox();
    let is_refused = |length: &usize| sandbox.compile(&whole[..*length]).is_err();
    let refused = (0..whole.len()).filter(is_refused).count();
    // Without its data or its names, a program is still a program.
    assert!(whole.len() - refused <= 2, "{refused} of {}", whole.len());
    let garbage: Vec<u8> = whole[..8].iter().copied().chain([0xff; 50]).collect();
    assert!(matches!(refusal(&garbage), BadProgram::Invalid { .. }));
}

fn what(text: &str) -> String {
    match refusal(&binary(text)) {
        BadProgram::WrongKind { what } => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn modules_that_are_no_commands_are_refused() {
    assert!(what("(module)").contains("no export _start"));
    assert!(what(r#"(module (func (export "_initialize")))"#).contains("reactor"));
    let wrong = what(r#"(module (func (export "_start") (param i32)))"#);
    assert!(wrong.contains("without parameters"), "{wrong}");
    assert!(what(r#"(module (memory (export "_start") 1))"#).contains("not a function"));
}

#[test]
fn components_that_are_no_commands_are_refused() {
    let exporting = |name: &str| {
        format!(
            r#"(component
            (core module $m (func (export "f")))
            (core instance $i (instantiate $m))
            (func $f (canon lift (core func $i "f")))
            (instance $e (export "handle" (func $f)))
            (export "{name}" (instance $e)))"#
        )
    };
    assert!(what("(component)").contains("without exports"));
    assert!(what(&exporting("wasi:http/incoming-handler@0.2.0")).contains("serves HTTP"));
    assert!(what(&exporting("wasi:cli/run@0.3.0")).contains("wasm32-wasip2"));
    let other = what(&exporting("acme:thing/stuff@1.0.0"));
    assert!(other.contains("acme:thing/stuff@1.0.0"), "{other}");
    // The name is right, the function is missing.
    let bad = refusal(&binary(&exporting("wasi:cli/run@0.2.0")));
    assert!(matches!(bad, BadProgram::Invalid { .. }), "{bad:?}");
}

#[test]
fn unknown_imports_are_named() {
    let detail = |text: &str| match refusal(&binary(text)) {
        BadProgram::Invalid { detail } => detail,
        other => panic!("{other:?}"),
    };
    let module = detail(r#"(module (import "env" "secret" (func)) (func (export "_start")))"#);
    assert!(module.contains("env::secret"), "{module}");
    let component = detail(
        r#"(component
        (import "acme:thing/stuff" (func $f))
        (core module $m (func (export "run") (result i32) (i32.const 0)))
        (core instance $i (instantiate $m))
        (func $run (result (result)) (canon lift (core func $i "run")))
        (instance $e (export "run" (func $run)))
        (export "wasi:cli/run@0.2.0" (instance $e)))"#,
    );
    assert!(component.contains("acme:thing/stuff"), "{component}");
}

#[test]
fn large_binaries_are_refused_before_they_are_compiled() {
    let sandbox = sandbox_with(Limits {
        program_bytes: 100,
        ..Limits::default()
    });
    let bytes = 101;
    let refused = sandbox.compile(&[0; 101]).unwrap_err();
    let expected = BadProgram::TooLarge { bytes, limit: 100 };
    assert_eq!(refused, CompileError::Bad(expected));
}
