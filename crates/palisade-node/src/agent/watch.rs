//! Who touches our files: inotify(7) on the folder.

use std::{collections::BTreeSet, io, mem::MaybeUninit, os::fd::OwnedFd};

use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
    io::Errno,
};
use tokio::io::unix::AsyncFd;

use super::files::Folder;

/// What was touched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Touched {
    /// Files, by name.
    pub names: BTreeSet<String>,
    /// The folder itself, or more than the kernel could report.
    pub everything: bool,
}

/// A watch on the folder.
#[derive(Debug)]
pub struct FolderWatch {
    inotify: AsyncFd<OwnedFd>,
    identity: (u64, u64),
}

impl FolderWatch {
    /// Watches a folder. Must be called inside a tokio runtime.
    pub fn new(folder: &Folder) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::MOVE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&inotify, folder.proc_path(), flags)?;
        Ok(Self { inotify: registered(inotify)?, identity: folder.identity()? })
    }

    /// Whether it watches this folder, and not one that was there before.
    #[must_use]
    pub fn is_on(&self, folder: &Folder) -> bool {
        folder.identity().is_ok_and(|identity| identity == self.identity)
    }

    /// Waits until something is touched.
    pub async fn touched(&self) -> io::Result<Touched> {
        loop {
            let mut ready = self.inotify.readable().await?;
            let touched = drain(self.inotify.get_ref())?;
            ready.clear_ready();
            if touched != Touched::default() {
                return Ok(touched);
            }
        }
    }
}

/// An owned descriptor stays open for as long as it is registered: what the deprecation warns of cannot happen.
#[expect(
    deprecated,
    reason = "the replacement is unsafe, and needed only for descriptors that other code may close"
)]
fn registered(inotify: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(inotify)
}

fn drain(inotify: &OwnedFd) -> io::Result<Touched> {
    let mut touched = Touched::default();
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(inotify, &mut buffer);
    loop {
        match reader.next() {
            Ok(event) => {
                let itself = ReadFlags::UNMOUNT
                    | ReadFlags::DELETE_SELF
                    | ReadFlags::MOVE_SELF
                    | ReadFlags::QUEUE_OVERFLOW
                    | ReadFlags::IGNORED;
                touched.everything |= event.events().intersects(itself);
                if let Some(name) = event.file_name() {
                    touched.names.insert(name.to_string_lossy().into_owned());
                }
            }
            Err(Errno::AGAIN) => return Ok(touched),
            Err(error) => return Err(error.into()),
        }
    }
}
