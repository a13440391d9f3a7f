//! Accepted findings.

use crate::support::{PRIVILEGED, Project};

fn check(text: &str) -> crate::support::Run {
    Project::with(text).run(&["check", "--level=baseline", "pod.yaml"])
}

fn with_comment(comment: &str) -> String {
    PRIVILEGED.replace("privileged: true", &format!("privileged: true # {comment}"))
}

#[test]
fn applies_to_its_line_the_line_below_or_its_object() {
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
fn suppressions_do_not_change_the_verdict() {
    let text = with_comment("palisade:ignore pss/privileged reason=\"x\"");
    let run = Project::with(&text).run(&["check", "--level=baseline", "pod.yaml", "-o", "json"]);
    assert_eq!(run.json()["objects"][0]["allowed"], false);
    assert_eq!(run.json()["findings"].as_array().unwrap().len(), 0);
    assert_eq!(run.status, 0);
}

#[test]
fn a_suppression_without_a_reason_is_ignored() {
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
    1 finding can be fixed with --unsafe-fixes; --diff shows what would change
    exit status: 1
    "#);
}

#[test]
fn an_expired_suppression_has_no_effect() {
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
    1 finding can be fixed with --unsafe-fixes; --diff shows what would change
    exit status: 1
    "#);
}

#[test]
fn reports_unused_suppressions() {
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
fn reports_invalid_suppressions() {
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
fn applies_annotations_to_their_own_object_only() {
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
fn a_suppression_of_a_rule_of_another_level_is_not_unused() {
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
