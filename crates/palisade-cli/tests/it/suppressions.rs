//! Accepted findings.

use crate::support::{PRIVILEGED, Project};

fn check(text: &str) -> crate::support::Run {
    Project::with(text).run(&["check", "--level=baseline", "pod.yaml"])
}

fn with_comment(comment: &str) -> String {
    PRIVILEGED.replace("privileged: true", &format!("privileged: true # {comment}"))
}

#[test]
fn on_the_line_above_it_and_above_other_comments() {
    for (case, text) in [
        ("on the line", with_comment("palisade:ignore pss/privileged reason=\"x\"")),
        ("by prefix", with_comment("palisade:ignore pss/* reason=\"x\"")),
        ("in time", with_comment("palisade:ignore pss/privileged reason=x until=2999-12-31")),
        (
            "above",
            PRIVILEGED.replace("        privileged", "        # palisade:ignore pss/privileged reason=\"x\"\n        privileged"),
        ),
        (
            "above another comment",
            PRIVILEGED.replace("        privileged", "        # palisade:ignore pss/privileged reason='x'\n        # why\n        privileged"),
        ),
        (
            "for the object",
            PRIVILEGED.replace("  name: bad\n", "  name: bad\n  annotations:\n    palisade.dev/ignore: \"pss/privileged; reason=it must; until=2999-12-31\"\n"),
        ),
    ] {
        let run = check(&text);
        assert_eq!((run.stdout.as_str(), run.status), ("", 0), "{case}: {run}");
        assert!(run.stderr.contains("1 accepted"), "{case}: {run}");
    }
}

#[test]
fn the_verdict_stays_the_truth() {
    let text = with_comment("palisade:ignore pss/privileged reason=\"x\"");
    let run = Project::with(&text).run(&["check", "--level=baseline", "pod.yaml", "-o", "json"]);
    assert_eq!(run.json()["objects"][0]["allowed"], false);
    assert_eq!(run.json()["findings"].as_array().unwrap().len(), 0);
    assert_eq!(run.status, 0);
}

#[test]
fn without_a_reason_it_does_not_hold() {
    insta::assert_snapshot!(check(&with_comment("palisade:ignore pss/privileged")), @r#"
    error[pss/privileged]: container "web" is privileged
      --> pod.yaml:10:21
       |
    10 |         privileged: true # palisade:ignore pss/privileged
       |                     ^^^^ baseline allows false, or no value
       = because: Pod Security Standards v1.37, Baseline, "Privileged Containers": a privileged container is root on the node
       = help: set `securityContext.privileged: false` in container "web"

    error[suppression/no-reason]: the suppression of pss/privileged has no reason, and is ignored
      --> pod.yaml:10:26
       |
    10 |         privileged: true # palisade:ignore pss/privileged
       |                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ a reason is required
       = help: add why it is acceptable: reason="…"

    1 object in 1 file checked at baseline:latest: 0 allowed, 1 denied; 2 errors
    1 finding can be fixed with --fix; --diff shows what would change
    exit status: 1
    "#);
}

#[test]
fn after_its_end_the_finding_comes_back() {
    insta::assert_snapshot!(check(&with_comment("palisade:ignore pss/privileged reason=\"until the rewrite\" until=2020-01-31")), @r#"
    error[pss/privileged]: container "web" is privileged
      --> pod.yaml:10:21
       |
    10 |         privileged: true # palisade:ignore pss/privileged reason="until the rewrite" until=2020-01-31
       |                     ^^^^ baseline allows false, or no value
       = because: Pod Security Standards v1.37, Baseline, "Privileged Containers": a privileged container is root on the node
       = because: its suppression ("until the rewrite") expired on 2020-01-31
       = help: set `securityContext.privileged: false` in container "web"

    1 object in 1 file checked at baseline:latest: 0 allowed, 1 denied; 1 error
    1 finding can be fixed with --fix; --diff shows what would change
    exit status: 1
    "#);
}

#[test]
fn what_is_not_needed_is_said() {
    let text = format!(
        "# palisade:ignore pss/hostPorts reason=\"x\"\n{}",
        with_comment("palisade:ignore pss/privileged reason=x")
    );
    insta::assert_snapshot!(check(&text), @r#"
    warning[suppression/unused]: unused suppression of pss/hostPorts
     --> pod.yaml:1:1
      |
    1 | # palisade:ignore pss/hostPorts reason="x"
      | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: remove it

    1 object in 1 file checked at baseline:latest: 0 allowed, 1 denied; 1 warning, 1 accepted
    exit status: 0
    "#);
}

#[test]
fn what_cannot_be_understood_is_said() {
    for comment in [
        "palisade:ignore",
        "palisade:ignore everything reason=x",
        "palisade:ignore pss/privileged reason=x until=soon",
    ] {
        let run = check(&with_comment(comment));
        assert_eq!(run.codes(), ["pss/privileged", "suppression/invalid"], "{comment}: {run}");
    }
}

#[test]
fn a_template_accepts_for_itself_and_not_for_its_neighbour() {
    let deployment = |name: &str, annotation: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  template:\n    metadata: {{annotations: {{{annotation}}}}}\n    spec: {{hostPID: true, containers: [{{name: c}}]}}\n---\n"
        )
    };
    let text =
        deployment("a", "palisade.dev/ignore: pss/hostNamespaces; reason=agent") + &deployment("b", "");
    let run = check(&text);
    assert_eq!(run.codes(), ["pss/hostNamespaces"], "{run}");
    assert!(run.stdout.contains("pod.yaml:15:"), "{run}");
}

#[test]
fn an_exception_for_a_rule_of_another_level_is_not_unused() {
    let text = PRIVILEGED.replace(
        "        privileged: true",
        "        # palisade:ignore pss/allowPrivilegeEscalation,pss/capabilities_restricted reason=\"x\"\n        privileged: false",
    );
    assert_eq!(check(&text).codes(), [""; 0], "baseline does not have these rules");
    let run = Project::with(&text).run(&["check", "pod.yaml"]);
    assert!(run.codes().contains(&"suppression/unused".to_owned()), "restricted has, at another line: {run}");
    let misspelt = PRIVILEGED
        .replace("privileged: true", "privileged: false # palisade:ignore pss/priviledged reason=x");
    assert_eq!(check(&misspelt).codes(), ["suppression/unused"]);
}
