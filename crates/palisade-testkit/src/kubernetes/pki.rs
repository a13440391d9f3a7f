//! The certificates of a cluster, and the kubeconfigs made of them.

use std::{
    fs,
    net::IpAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::json;

pub(super) struct Authority {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// Writes `localhost.crt` and `localhost.key`, a certificate that nothing trusts.
pub fn write_localhost_certificate(folder: &Path) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    fs::write(folder.join("localhost.crt"), certificate.pem()).unwrap();
    fs::write(folder.join("localhost.key"), key.serialize_pem()).unwrap();
}

impl Authority {
    /// Makes a CA, and the key that signs service account tokens.
    pub(super) fn new(folder: &Path) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "kubernetes");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { folder: folder.to_owned(), issuer };
        authority.write("ca.crt", &authority.issuer.pem());
        authority.write("ca.key", &authority.issuer.key().serialize_pem());
        let tokens = KeyPair::generate().unwrap();
        authority.write("sa.key", &tokens.serialize_pem());
        authority.write("sa.pub", &tokens.public_key_pem());
        authority
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn sign(&self, name: &str, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        self.write(&format!("{name}.crt"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    /// `name.crt` and `name.key` of a server at `addresses`.
    pub(super) fn server(&self, name: &str, addresses: &[IpAddr]) {
        let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let mut params = CertificateParams::new(names.map(str::to_owned)).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        self.sign(name, params, ExtendedKeyUsagePurpose::ServerAuth);
    }

    /// `name.crt` and `name.key` of a client.
    pub(super) fn client(&self, name: &str, user: &str, group: Option<&str>) {
        self.sign(name, subject(user, group), ExtendedKeyUsagePurpose::ClientAuth);
    }

    /// `name.key` of a client, and the request for its certificate.
    pub(super) fn request(&self, name: &str, user: &str, group: Option<&str>) -> String {
        let key = KeyPair::generate().unwrap();
        let request = subject(user, group).serialize_request(&key).unwrap();
        self.write(&format!("{name}.key"), &key.serialize_pem());
        request.pem().unwrap()
    }

    /// Writes a kubeconfig of a client that has a certificate here.
    pub(super) fn kubeconfig(&self, client: &str, server: &str, path: &Path) {
        let data = |name: &str| STANDARD.encode(fs::read(self.folder.join(name)).unwrap());
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster":
                {"server": server, "certificate-authority-data": data("ca.crt")}}],
            "users": [{"name": client, "user": {"client-certificate-data": data(&format!("{client}.crt")),
                "client-key-data": data(&format!("{client}.key"))}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": client}}]});
        fs::write(path, config.to_string()).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

fn subject(user: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.distinguished_name.push(DnType::CommonName, user);
    params
}
