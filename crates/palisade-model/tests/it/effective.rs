//! One context per container, every value with where it came from.

use palisade_model::{
    compat::Compat,
    effective::effective_contexts,
    prepare::{Prepared, Subject},
};

use crate::pod;

fn row(json: &str, container: &str, field: &str) -> String {
    let pod = Prepared::new(pod(json), Subject::Pod, &Compat::designs());
    let contexts = effective_contexts(&pod);
    let context = contexts.iter().find(|context| context.container == container).unwrap();
    let row = context.rows().into_iter().find(|row| row.field == field).unwrap();
    format!("{} <- {}", row.value, row.source)
}

#[test]
fn a_container_overrides_its_pod_field_by_field() {
    let json = r#"{"spec":{"hostPID":true,"hostUsers":false,
        "securityContext":{"runAsUser":1000,"runAsGroup":2000,"runAsNonRoot":true,"fsGroup":7,"supplementalGroups":[8,9],
            "seLinuxOptions":{"type":"a_t","level":"s0"},"windowsOptions":{"runAsUserName":"pod","hostProcess":true},
            "sysctls":[{"name":"kernel.msgmax","value":"1"}]},
        "containers":[
            {"name":"own","securityContext":{"runAsUser":0,"runAsNonRoot":false,"seLinuxOptions":{"type":"b_t"},
                "windowsOptions":{"runAsUserName":"own"},"capabilities":{"add":["CHOWN"],"drop":["ALL"]},
                "allowPrivilegeEscalation":false,"procMount":"Unmasked","readOnlyRootFilesystem":true,"privileged":true}},
            {"name":"plain"}]}}"#;
    for (container, field, expected) in [
        ("own", "runAsUser", "0 <- spec.containers[0].securityContext.runAsUser"),
        ("own", "runAsGroup", "2000 <- spec.securityContext.runAsGroup"),
        ("own", "runAsNonRoot", "false <- spec.containers[0].securityContext.runAsNonRoot"),
        ("own", "supplementalGroups", "7 8 9 <- spec.securityContext.supplementalGroups"),
        // The whole struct is replaced: the pod's level does not shine through.
        ("own", "seLinuxOptions", "type=b_t <- spec.containers[0].securityContext.seLinuxOptions"),
        // Windows options move field by field.
        (
            "own",
            "windowsOptions.runAsUserName",
            "own <- spec.containers[0].securityContext.windowsOptions.runAsUserName",
        ),
        ("own", "windowsOptions.hostProcess", "true <- spec.securityContext.windowsOptions.hostProcess"),
        ("own", "capabilities", "add=CHOWN drop=ALL <- spec.containers[0].securityContext.capabilities"),
        ("own", "noNewPrivs", "true <- spec.containers[0].securityContext.allowPrivilegeEscalation"),
        ("own", "procMount", "Unmasked <- spec.containers[0].securityContext.procMount"),
        (
            "own",
            "readOnlyRootFilesystem",
            "true <- spec.containers[0].securityContext.readOnlyRootFilesystem",
        ),
        ("own", "privileged", "true <- spec.containers[0].securityContext.privileged"),
        ("plain", "runAsUser", "1000 <- spec.securityContext.runAsUser"),
        ("plain", "seLinuxOptions", "level=s0 type=a_t <- spec.securityContext.seLinuxOptions"),
        ("plain", "capabilities", "- <- not set: the runtime's default capabilities"),
        ("plain", "allowPrivilegeEscalation", "true <- not set: programs may gain privileges"),
        ("plain", "noNewPrivs", "false <- set only where allowPrivilegeEscalation is false"),
        ("plain", "sysctls", "name=kernel.msgmax value=1 <- spec.securityContext.sysctls"),
        ("plain", "hostPID", "true <- spec.hostPID"),
        ("plain", "hostNetwork", "false <- not set"),
        ("plain", "hostUsers", "false <- spec.hostUsers"),
        ("plain", "seccompProfile", "Unconfined <- nothing set: a kubelet leaves the container unconfined"),
    ] {
        assert_eq!(row(json, container, field), expected, "{container} {field}");
    }
}

#[test]
fn the_proposals_defaults_lie_between_container_and_pod() {
    let json = r#"{"spec":{"securityContext":{"runAsUser":1,"hostNetwork":true,"supplementalGroups":[5],
        "containerDefaults":{"runAsUser":2,"runAsGroup":3,"privileged":true,"runWithSupplementalGroups":[6]}},
        "containers":[{"name":"a"},{"name":"b","securityContext":{"runAsUser":4,"runWithSupplementalGroups":[7]}}]}}"#;
    for (container, field, expected) in [
        ("a", "runAsUser", "2 <- spec.securityContext.containerDefaults.runAsUser"),
        ("a", "runAsGroup", "3 <- spec.securityContext.containerDefaults.runAsGroup"),
        ("a", "privileged", "true <- spec.securityContext.containerDefaults.privileged"),
        ("a", "supplementalGroups", "6 <- spec.securityContext.containerDefaults.runWithSupplementalGroups"),
        ("b", "runAsUser", "4 <- spec.containers[1].securityContext.runAsUser"),
        ("b", "supplementalGroups", "7 <- spec.containers[1].securityContext.runWithSupplementalGroups"),
        ("b", "hostNetwork", "true <- spec.securityContext.hostNetwork"),
    ] {
        assert_eq!(row(json, container, field), expected, "{container} {field}");
    }
}

#[test]
fn every_field_has_a_row_and_every_container_a_context() {
    let json = r#"{"spec":{"initContainers":[{"name":"i"}],"containers":[{"name":"c"}],"ephemeralContainers":[{"name":"e"}]}}"#;
    let pod = Prepared::new(pod(json), Subject::Pod, &Compat::kubernetes(37));
    let contexts = effective_contexts(&pod);
    assert_eq!(contexts.iter().map(|context| context.container).collect::<Vec<_>>(), ["i", "c", "e"]);
    assert!(contexts.iter().all(|context| context.rows().len() == 26));
}
