//! A kubeconfig with everything embedded.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use palisade_serve::certificate::Pair;

/// The kubeconfig of a user of the server at `url`, with the context `palisade`.
#[must_use]
pub fn kubeconfig(url: &str, ca: &str, user: &Pair) -> String {
    let [ca, certificate, key] = [ca, &user.certificate, &user.key].map(|pem| STANDARD.encode(pem));
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: palisade\n  \
         cluster:\n    \
         server: {url}\n    \
         certificate-authority-data: {ca}\n\
         users:\n\
         - name: palisade-admin\n  \
         user:\n    \
         client-certificate-data: {certificate}\n    \
         client-key-data: {key}\n\
         contexts:\n\
         - name: palisade\n  \
         context:\n    \
         cluster: palisade\n    \
         user: palisade-admin\n\
         current-context: palisade\n"
    )
}
