//! Help, usage errors and completions.

use crate::workspace::Workspace;

#[test]
fn help_starts_with_first_steps_and_lists_the_exit_codes() {
    let workspace = Workspace::new();
    let result = workspace.qo(&[]);
    let text = &result.assert(0).stdout;
    assert!(
        text.find("qo dev").unwrap() < text.find("qo submit").unwrap(),
        "{text}"
    );
    let result = workspace.qo(&["help"]);
    assert!(
        result.assert(0).stdout.contains("Exit codes:"),
        "{result:#?}"
    );
    let result = workspace.qo(&["submit", "--help"]);
    assert!(result.assert(0).stdout.contains("Examples:"), "{result:#?}");
    assert!(
        workspace
            .qo(&["--version"])
            .assert(0)
            .stdout
            .starts_with("qo ")
    );
}

#[test]
fn usage_errors_go_to_standard_error() {
    let workspace = Workspace::new();
    let result = workspace.qo(&["lst"]);
    assert!(result.assert(2).stderr.contains("'list'"), "{result:#?}");
    assert_eq!(result.stdout, "");
    let result = workspace.qo(&["--json", "list", "--bogus"]);
    let error = result.assert(2).error();
    assert_eq!(error["kind"], "bad_input");
    assert!(
        error["message"].as_str().unwrap().contains("--bogus"),
        "{error}"
    );
}

#[test]
fn every_shell_has_completions() {
    let workspace = Workspace::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let result = workspace.qo(&["completions", shell]);
        assert!(result.assert(0).stdout.contains("run-now"), "{shell}");
    }
    workspace.qo(&["completions", "cmd"]).assert(2);
}
