#![no_main]
//! Any string as an annotation value: what is understood is written back as the same reference, and no reference to a
//! ConfigMap can climb out of its namespace.

use libfuzzer_sys::fuzz_target;
use palisade_model::{node::join_clean, profile::{apparmor, seccomp, ProfileRef}};
use palisade_base::go::Quoted;

fuzz_target!(|value: &str| {
    let quoted = Quoted(value).to_string();
    assert!(quoted.len() >= value.chars().count() + 2 && quoted.bytes().all(|byte| byte >= b' '));
    if let Some(reference) = seccomp::from_annotation(value) {
        let written = reference.to_annotation();
        assert_eq!(seccomp::from_annotation(&written), Some(reference.clone()));
        assert_eq!(reference.to_field().reference(), Some(reference.clone()));
        if let ProfileRef::ConfigMap { name, key } = &reference {
            assert!(![name, key].iter().any(|part| part.contains('/') || part.starts_with("..") || part.is_empty()));
        }
    }
    if let Some(reference) = apparmor::from_annotation(value) {
        assert!(apparmor::is_valid_annotation(value));
        assert_eq!(apparmor::from_annotation(&reference.to_annotation()), Some(reference));
    }
    assert!(!join_clean("/var/lib/kubelet/seccomp", value).split('/').any(|element| element == ".."));
});
