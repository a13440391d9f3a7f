//! `palisade profile push|pull`: profiles in OCI registries.
//!
//! The only commands of `profile` that use the network, with a registry that the user names. Credentials are those of
//! `docker login`.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use clap::Args;
use palisade_model::profile::artifact::{ArtifactReference, PushTarget, Repository, SCHEME, check_profile};
use palisade_registry::{Client, Keyring, RegistryError, Transport};

use crate::{
    failure::{Exit, Failure},
    input::Input,
    service,
    terminal::Terminal,
};

/// How a registry is reached.
#[derive(Debug, Args)]
pub(super) struct RegistryArgs {
    /// Credentials, as docker login writes them [default: $DOCKER_CONFIG/config.json or ~/.docker/config.json, if it is there]
    #[arg(long, value_name = "FILE")]
    registry_config: Option<PathBuf>,
    /// Reach a registry on a loopback address over plain HTTP
    #[arg(long)]
    plain_http: bool,
}

/// `palisade profile push`
#[derive(Debug, Args)]
pub struct PushArgs {
    /// The profile (JSON); - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where to: [oci://]<registry>/<repository>[:<tag>]
    #[arg(value_name = "REFERENCE")]
    target: String,
    /// Which registry.
    #[command(flatten)]
    registry: RegistryArgs,
}

/// `palisade profile pull`
#[derive(Debug, Args)]
pub struct PullArgs {
    /// The artifact: [oci://]<registry>/<repository>@sha256:<digest>
    #[arg(value_name = "REFERENCE")]
    reference: String,
    /// Which registry.
    #[command(flatten)]
    registry: RegistryArgs,
}

/// Pushes a profile, and prints the reference for pods.
pub(super) fn push(args: &PushArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let wrong = |error| Failure::input(format!("{:?} {error}", args.target));
    let target = PushTarget::parse(&args.target).map_err(wrong)?;
    let input = if args.file.as_os_str() == "-" { Input::Stdin } else { Input::File(args.file.clone()) };
    let content = input.read()?;
    let name = input.name();
    let text = String::from_utf8(content).map_err(|error| Failure::input(format!("{name}: {error}")))?;
    check_profile(&text).map_err(|error| Failure::input(format!("{name} {error}")))?;
    let (client, keyring) = args.registry.open(&target.repository)?;
    let credentials = keyring.matching(&target.repository);
    let pushed = service::block_on(async {
        let pushed = client.push(&target, &text, &credentials).await;
        pushed.map_err(|error| failed("push to", &target.repository, &error, &keyring))
    })?;
    writeln!(terminal.out, "{SCHEME}{pushed}").map_err(Failure::output)?;
    Ok(Exit::Clean)
}

/// Prints the profile of an artifact, as the registry holds it.
pub(super) fn pull(args: &PullArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let text = args.reference.strip_prefix(SCHEME).unwrap_or(&args.reference);
    let wrong = |error| Failure::input(format!("{:?} {error}", args.reference));
    let artifact = ArtifactReference::parse(text).map_err(wrong)?;
    let (client, keyring) = args.registry.open(&artifact.repository)?;
    let credentials = keyring.matching(&artifact.repository);
    let profile = service::block_on(async {
        client.pull(&artifact, &credentials).await.map_err(|error| match error {
            RegistryError::Artifact(error) => Failure::input(format!("{SCHEME}{artifact} {error}")),
            error => failed("pull from", &artifact.repository, &error, &keyring),
        })
    })?;
    terminal.out.write_all(profile.as_bytes()).map_err(Failure::output)?;
    Ok(Exit::Clean)
}

fn failed(what: &str, repository: &Repository, error: &RegistryError, keyring: &Keyring) -> Failure {
    let helper = match (error, keyring.helper(repository)) {
        (RegistryError::Denied { .. }, Some(helper)) => {
            format!(
                "; they are kept by the credential helper {helper:?}, which is not run: name a file that holds them with --registry-config"
            )
        }
        _ => String::new(),
    };
    Failure::incomplete(format!("cannot {what} {repository}: {error}{helper}"))
}

impl RegistryArgs {
    fn open(&self, repository: &Repository) -> Result<(Client, Keyring), Failure> {
        let transport = if self.plain_http { Transport::PlainHttpOnLoopback } else { Transport::Https };
        if self.plain_http && !palisade_registry::is_loopback(repository.host()) {
            return Err(Failure::input(format!(
                "--plain-http: {} is not on a loopback address: profiles and credentials would be readable on the network",
                repository.registry
            )));
        }
        let client = Client::new(transport).map_err(Failure::incomplete)?;
        Ok((client, self.keyring()?))
    }

    /// A file that is named must be there; the usual one may be missing.
    fn keyring(&self) -> Result<Keyring, Failure> {
        let mut keyring = Keyring::default();
        let (file, is_named) = match (&self.registry_config, usual_file()) {
            (Some(file), _) => (file.clone(), true),
            (None, Some(file)) => (file, false),
            (None, None) => return Ok(keyring),
        };
        let content = match fs::read(&file) {
            Ok(content) => content,
            Err(error) if !is_named && error.kind() == io::ErrorKind::NotFound => return Ok(keyring),
            Err(error) => return Err(Failure::file(&file, error)),
        };
        keyring.add_config(&content).map_err(|error| Failure::file(&file, error))?;
        Ok(keyring)
    }
}

fn usual_file() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let below_home = || folder("HOME").map(|home| Path::new(&home).join(".docker"));
    let folder = folder("DOCKER_CONFIG").map(PathBuf::from).or_else(below_home)?;
    Some(folder.join("config.json"))
}
