//! Adds a made-up release, v1.38, to the committed tables, as CONTRIBUTING.md describes it.

use std::fs;
use std::path::Path;

use palisade_apimachinery::schema::Schema;
use palisade_base::version::KubeVersion;

use super::*;

const KINDS: &str = "\
coordination.Lease k8s.io/api/coordination/v1
things.Widget k8s.io/api/things/v1
";

/// A release with one more field in leases, one kind more, and metadata without `selfLink`.
const RELEASE: &[(&str, &str)] = &[
    (
        "staging/src/k8s.io/api/coordination/v1/types.go",
        r#"
package v1
import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)
type CoordinatedLeaseStrategy string
type Lease struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	Spec LeaseSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`
}
type LeaseSpec struct {
	HolderIdentity *string `json:"holderIdentity,omitempty" protobuf:"bytes,1,opt,name=holderIdentity"`
	LeaseDurationSeconds *int32 `json:"leaseDurationSeconds,omitempty" protobuf:"varint,2,opt,name=leaseDurationSeconds"`
	AcquireTime *metav1.MicroTime `json:"acquireTime,omitempty" protobuf:"bytes,3,opt,name=acquireTime"`
	RenewTime *metav1.MicroTime `json:"renewTime,omitempty" protobuf:"bytes,4,opt,name=renewTime"`
	LeaseTransitions *int32 `json:"leaseTransitions,omitempty" protobuf:"varint,5,opt,name=leaseTransitions"`
	Strategy *CoordinatedLeaseStrategy `json:"strategy,omitempty" protobuf:"bytes,6,opt,name=strategy"`
	PreferredHolder *string `json:"preferredHolder,omitempty" protobuf:"bytes,7,opt,name=preferredHolder"`
	// New in v1.38.
	Regions []string `json:"regions,omitempty" protobuf:"bytes,8,rep,name=Regions"`
}
"#,
    ),
    (
        "staging/src/k8s.io/api/coordination/v1/generated.proto",
        "
message Lease {
  optional .k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta metadata = 1;

  optional LeaseSpec spec = 2;
}

message LeaseSpec {
  optional string holderIdentity = 1;

  // new
  repeated string Regions = 8;
}
",
    ),
    (
        "staging/src/k8s.io/api/things/v1/types.go",
        r#"
package v1
import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
type Widget struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	Size int32 `json:"size" protobuf:"varint,2,opt,name=size"`
}
"#,
    ),
    (
        "staging/src/k8s.io/api/things/v1/generated.proto",
        "
message Widget {
  optional .k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta metadata = 1;
  optional int32 size = 2;
}
",
    ),
    (
        "staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/types.go",
        r#"
package v1
type TypeMeta struct {
	Kind string `json:"kind,omitempty" protobuf:"bytes,1,opt,name=kind"`
	APIVersion string `json:"apiVersion,omitempty" protobuf:"bytes,2,opt,name=apiVersion"`
}
type ObjectMeta struct {
	Name string `json:"name,omitempty" protobuf:"bytes,1,opt,name=name"`
	Labels map[string]string `json:"labels,omitempty" protobuf:"bytes,11,rep,name=labels"`
}
"#,
    ),
    (
        "staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto",
        "
message ObjectMeta {
  optional string name = 1;
  map<string, string> labels = 11;
}
",
    ),
    (
        "api/openapi-spec/v3/apis__things__v1_openapi.json",
        r#"{"components": {"schemas": {
            "io.k8s.api.coordination.v1.Lease": {},
            "io.k8s.api.coordination.v1.LeaseSpec": {"properties": {"regions": {"x-kubernetes-list-type": "set"}}},
            "io.k8s.api.things.v1.Widget": {"required": ["size"]},
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {}
        }}}"#,
    ),
    (
        "pkg/apis/core/types.go",
        "package core\ntype PodSpec struct {\n\tRestartPolicy string\n\tShine *string\n}\n",
    ),
    (
        "staging/src/k8s.io/api/core/v1/types.go",
        "package v1\ntype PodSpec struct {\n\tRestartPolicy string `json:\"restartPolicy\"`\n\tShine *string `json:\"shine\"`\n}\n",
    ),
    ("staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1/types.go", "package v1\n"),
    ("staging/src/k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/types.go", "package v1\n"),
];

const ROLES: &str = "plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata";
const GATES: &str = "test/compatibility_lifecycle/reference/versioned_feature_list.yaml";

/// One object of each file: names are those of upstream's, rules are not.
const POLICY: &[(&str, &str)] = &[
    (
        "cluster-roles",
        "items:\n\
         - metadata: {name: watcher, labels: {rbac.authorization.k8s.io/aggregate-to-view: 'true'}}\n\
         \x20 rules:\n\
         \x20 - {apiGroups: ['', apps], resources: [pods], resourceNames: [a], verbs: [get, watch]}\n\
         \x20 - {nonResourceURLs: [/healthz], verbs: [get]}\n",
    ),
    ("controller-roles", "items:\n- metadata: {name: 'system:controller:a'}\n"),
    (
        "controller-role-bindings",
        "items:\n- metadata: {name: 'system:controller:a'}\n\
         \x20 subjects: [{kind: ServiceAccount, name: a, namespace: kube-system}]\n",
    ),
    ("namespace-roles", "items:\n- metadata: {name: r, namespace: kube-system}\n"),
    ("cluster-role-bindings", "items:\n- metadata: {name: nodes}\n  roleRef: {name: watcher}\n"),
    (
        "namespace-role-bindings",
        "items:\n- metadata: {name: b, namespace: kube-system}\n  roleRef: {name: r}\n\
         \x20 subjects: [{kind: User, name: u}, {kind: ServiceAccount, name: s, namespace: kube-system}]\n",
    ),
];

fn put(folder: &Path, file: &str, text: &str) {
    let file = folder.join(file);
    fs::create_dir_all(file.parent().expect("inside the folder")).expect("folder");
    fs::write(file, text).expect("written");
}

#[test]
fn a_made_up_release_is_added_in_the_steps_of_the_guide() {
    // Step 1: the sources of the release, and of the one before for the gates.
    let (releases, root) = (tempfile::tempdir().expect("folder"), tempfile::tempdir().expect("folder"));
    let (releases, root) = (releases.path(), root.path());
    let new = releases.join("v1.38");
    for (file, text) in RELEASE {
        put(&new, file, text);
    }
    for (file, text) in POLICY {
        put(&new, &format!("{ROLES}/{file}.yaml"), text);
    }
    let gate = |name: &str| {
        format!(
            "- name: {name}\n  versionedSpecs:\n  - {{default: true, preRelease: Beta, version: '1.33'}}\n"
        )
    };
    let committed = crate::root();
    for file in [INTERNAL, &format!("{SCHEMA}/types.txt")] {
        put(root, file, &fs::read_to_string(committed.join(file)).expect("committed"));
    }
    put(root, &format!("{SCHEMA}/kinds.txt"), KINDS);
    for file in [PROTOBUF, BOOTSTRAP] {
        put(root, file, "");
    }
    put(root, "crates/palisade-model/src/compat.rs", "// the gate ProcMountType");

    // Step 2: the generator.
    let before = fs::read_to_string(root.join(SCHEMA).join("types.txt")).expect("table");
    run_generate(root, releases).expect("made");
    let types = fs::read_to_string(root.join(SCHEMA).join("types.txt")).expect("table");

    // The list of releases has grown.
    assert!(before.contains("# Kubernetes v1.19 to v1.37\n"));
    assert!(types.contains("# Kubernetes v1.19 to v1.38\n"));
    // What has not changed is as it was.
    let block = |table: &str, name: &str| -> Vec<String> {
        let (_, rest) = table.split_once(&format!("\n@{name}\n")).expect("struct");
        rest.lines().take_while(|line| !line.starts_with('@')).map(str::to_owned).collect()
    };
    let mut spec = block(&types, "coordination.LeaseSpec");
    assert_eq!(spec.pop().as_deref(), Some("regions []string o S >38"));
    assert_eq!(spec, block(&before, "coordination.LeaseSpec"));

    // A new field is known from its release on, one that went up to the release before.
    let schema = Schema::read(types.leak(), "");
    for (name, field, in_37, in_38) in [
        ("coordination.LeaseSpec", "regions", false, true),
        ("coordination.LeaseSpec", "strategy", true, true),
        ("meta.ObjectMeta", "selfLink", true, false),
        ("things.Widget", "size", false, true),
    ] {
        let (_, of) = schema.by_name(name).expect(name);
        let found = of.field(field).expect(field);
        let known = [37, 38].map(|minor| found.exists_in(KubeVersion::v1(minor)));
        assert_eq!(known, [in_37, in_38], "{name}.{field}");
    }

    let text = |file: &str| fs::read_to_string(root.join(file)).expect("made");
    let without_header =
        |file: &str| text(file).lines().filter(|l| !l.starts_with('#')).collect::<Vec<_>>().join("\n");
    assert_eq!(
        without_header(PROTOBUF),
        "@coordination.Lease\n1 metadata meta.ObjectMeta\n2 spec coordination.LeaseSpec\n\
         @coordination.LeaseSpec\n1 holderIdentity s\n8 regions []s\n\
         @meta.ObjectMeta\n1 name s\n11 labels {}s\n\
         @things.Widget\n1 metadata meta.ObjectMeta\n2 size i"
    );
    assert_eq!(
        without_header(BOOTSTRAP),
        "clusterrole watcher aggregate=view\n  get watch | core,apps | pods : a\n  get | url | /healthz\n\
         controller a\nrole kube-system r\nclusterrolebinding nodes watcher\n\
         rolebinding kube-system b r User/u,ServiceAccount/s"
    );
    let internal = block(&text(INTERNAL), "PodSpec");
    assert!(internal.contains(&"Shine shine * >38".to_owned()), "{internal:?}");
    assert!(internal.contains(&"RestartPolicy restartPolicy s".to_owned()), "{internal:?}");
    assert!(internal.contains(&"NodeName nodeName s <38".to_owned()), "{internal:?}");

    // Running it again changes nothing; with the release before, it reports the gates that the code names.
    put(releases, &format!("v1.37/{GATES}"), &(gate("ProcMountType") + &gate("SomethingElse")));
    put(&new, GATES, &gate("UserNamespacesSupport"));
    for (file, source) in RELEASE {
        put(&releases.join("v1.37"), file, source);
    }
    let again = fs::read_to_string(root.join(SCHEMA).join("types.txt")).expect("table");
    let report = run_generate(root, releases).expect("made");
    assert_eq!(text(&format!("{SCHEMA}/types.txt")), again);
    assert_eq!(report, "gate ProcMountType: Beta, on -> none; see crates/palisade-model/src/compat.rs\n");
}

#[test]
fn the_tables_know_the_newest_release() {
    let table = fs::read_to_string(crate::root().join(SCHEMA).join("types.txt")).expect("table");
    let newest = KubeVersion::LATEST;
    assert!(
        table.contains(&format!("# Kubernetes {} to {newest}\n", KubeVersion::OLDEST)),
        "the newest release is {newest}: run cargo xtask gen --kubernetes DIR, or raise it"
    );
}
