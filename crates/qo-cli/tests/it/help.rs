//! What is told about the command itself.

use crate::place::Place;

#[test]
fn help_leads_and_names_the_exit_codes() {
    let place = Place::new();
    let ran = place.qo(&[]);
    let text = &ran.assert(0).stdout;
    assert!(
        text.find("qo dev").unwrap() < text.find("qo submit").unwrap(),
        "{text}"
    );
    let ran = place.qo(&["help"]);
    assert!(ran.assert(0).stdout.contains("Exit codes:"), "{ran:#?}");
    let ran = place.qo(&["submit", "--help"]);
    assert!(ran.assert(0).stdout.contains("Examples:"), "{ran:#?}");
    assert!(place.qo(&["--version"]).assert(0).stdout.starts_with("qo "));
}

#[test]
fn a_mistake_is_told_on_standard_error() {
    let place = Place::new();
    let ran = place.qo(&["lst"]);
    assert!(ran.assert(2).stderr.contains("'list'"), "{ran:#?}");
    assert_eq!(ran.stdout, "");
    let ran = place.qo(&["--json", "list", "--bogus"]);
    let error = ran.assert(2).error();
    assert_eq!(error["kind"], "bad_input");
    assert!(
        error["message"].as_str().unwrap().contains("--bogus"),
        "{error}"
    );
}

#[test]
fn every_shell_has_its_completions() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = place.qo(&["completions", shell]);
        assert!(ran.assert(0).stdout.contains("submit"), "{shell}");
    }
    place.qo(&["completions", "cmd"]).assert(2);
}
