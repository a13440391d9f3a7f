//! What stays of a service once it has nothing to do.

use std::{fs, thread, time::Duration};

use crate::support::{Project, Running};

#[test]
fn releases_the_memory_of_startup_code() {
    let project = Project::new();
    let mut up = project.command();
    let service = Running::start(
        up.args(["up", "--listen", "127.0.0.1:0", "--kubeconfig"]).arg(project.path("kubeconfig")),
    );
    // How much of files, code above all, is resident. Nothing but giving it back makes that less.
    let resident = || -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", service.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    service.line("palisade is up");
    let mut most = 0;
    for _ in 0..600 {
        let now = resident();
        most = most.max(now);
        if now < most / 2 {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("{} kB of code stay of at most {most}", resident());
}
