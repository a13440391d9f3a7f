//! Trust bundles in a `projected` volume: the certificates of ClusterTrustBundles, each once.
//!
//! Implements: `pkg/kubelet/clustertrustbundle` of Kubernetes v1.37. What is read is the API's, which validates the certificates.

use std::collections::BTreeSet;

use palisade_base::label_selector::LabelSelector;
use serde_json::Value;

use super::VolumeProblem;
use crate::{api::PodSource, runner::environment::ReferenceError};

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The file of a source, which names a bundle or selects those of a signer.
pub(super) async fn file(wanted: &Value, source: &dyn PodSource) -> Result<Vec<u8>, VolumeProblem> {
    let bundles = source.trust_bundles().await.map_err(ReferenceError::Api)?;
    content(wanted, &bundles)
}

fn content(wanted: &Value, bundles: &[Value]) -> Result<Vec<u8>, VolumeProblem> {
    let text = |field: &str| wanted.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let optional = wanted.get("optional").and_then(Value::as_bool) == Some(true);
    let (found, missing): (Vec<&Value>, _) = match (text("name"), text("signerName")) {
        (Some(name), _) => {
            let is_named = |bundle: &&Value| bundle.pointer("/metadata/name") == Some(&name.into());
            let missing = VolumeProblem::NoTrustBundle(name.to_owned());
            (bundles.iter().filter(is_named).collect(), missing)
        }
        (None, signer) => {
            // Without a selector nothing is selected; an empty one selects everything.
            let selector =
                wanted.get("labelSelector").filter(|value| !value.is_null()).map(LabelSelector::from_object);
            let is_selected = |bundle: &&Value| {
                bundle.pointer("/spec/signerName").and_then(Value::as_str) == signer
                    && signer.is_some()
                    && selector
                        .as_ref()
                        .is_some_and(|selector| selector.matches_labels(bundle.pointer("/metadata/labels")))
            };
            (bundles.iter().filter(is_selected).collect(), VolumeProblem::NoTrustBundleSelected)
        }
    };
    if found.is_empty() && !optional {
        return Err(missing);
    }
    let texts = found.iter().filter_map(|bundle| bundle.pointer("/spec/trustBundle")?.as_str());
    let certificates: BTreeSet<String> = texts.flat_map(certificates).collect();
    let mut file = String::new();
    for certificate in certificates {
        file.push_str(BEGIN);
        file.push('\n');
        for (at, character) in certificate.chars().enumerate() {
            if at > 0 && at % 64 == 0 {
                file.push('\n');
            }
            file.push(character);
        }
        file.push('\n');
        file.push_str(END);
        file.push('\n');
    }
    Ok(file.into_bytes())
}

/// The certificates of a text, in base64 without spaces.
fn certificates(text: &str) -> Vec<String> {
    let blocks = text.split(BEGIN).skip(1).filter_map(|rest| rest.split_once(END));
    blocks.map(|(block, _)| block.split_whitespace().collect()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bundle(name: &str, signer: &str, live: bool, bodies: &[&str]) -> Value {
        let blocks: Vec<String> = bodies.iter().map(|body| format!("{BEGIN}\n{body}\n{END}\n")).collect();
        json!({"metadata": {"name": name, "labels": {"live": live.to_string()}},
            "spec": {"signerName": signer, "trustBundle": blocks.concat()}})
    }

    #[test]
    fn selects_bundles_and_writes_each_certificate_once() {
        let bundles = [
            bundle("one", "", false, &["QQ=="]),
            bundle("a:s:1", "a/s", true, &["QkI=", "Q0ND"]),
            bundle("a:s:2", "a/s", false, &["Q0\nND"]),
            bundle("b:s:1", "b/s", true, &["RERE"]),
        ];
        let live = json!({"matchLabels": {"live": "true"}});
        let none = json!({"matchLabels": {"live": "maybe"}});
        for (case, wanted, expected) in [
            ("by name", json!({"name": "one"}), Ok(vec!["QQ=="])),
            ("no such name", json!({"name": "two"}), Err("clustertrustbundle \"two\" not found")),
            ("no such name, optional", json!({"name": "two", "optional": true}), Ok(vec![])),
            ("all of a signer", json!({"signerName": "a/s", "labelSelector": {}}), Ok(vec!["Q0ND", "QkI="])),
            (
                "some of a signer",
                json!({"signerName": "a/s", "labelSelector": live}),
                Ok(vec!["Q0ND", "QkI="]),
            ),
            (
                "no selector selects nothing",
                json!({"signerName": "a/s"}),
                Err("combination of signerName and labelSelector matched zero ClusterTrustBundles"),
            ),
            (
                "nothing selected",
                json!({"signerName": "a/s", "labelSelector": none}),
                Err("combination of signerName and labelSelector matched zero ClusterTrustBundles"),
            ),
            ("nothing selected, optional", json!({"signerName": "c/s", "optional": true}), Ok(vec![])),
            ("neither name nor signer", json!({"labelSelector": {}, "optional": true}), Ok(vec![])),
        ] {
            let found = content(&wanted, &bundles);
            let found = found
                .map(|file| certificates(&String::from_utf8(file).unwrap()))
                .map_err(|error| error.to_string());
            let expected = expected
                .map(|list: Vec<&str>| list.into_iter().map(str::to_owned).collect::<Vec<_>>())
                .map_err(str::to_owned);
            assert_eq!(found, expected, "{case}");
        }
    }
}
