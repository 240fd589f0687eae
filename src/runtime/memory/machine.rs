//! How much memory there is, of the machine or of the control group that the process is in, and how much the process has.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of memory that the process may use; `None`: this system does not tell.
pub fn memory() -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| total(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = limit_files(&groups).into_iter().filter_map(|path| limit(&read(&path)?));
    limits.chain(machine).min()
}

/// Bytes of memory that the process has; `None`: this system does not tell.
pub(super) fn resident() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// What `/proc/meminfo` says of the whole machine.
fn total(text: &str) -> Option<u64> {
    kibibytes(text, "MemTotal:")
}

/// The bytes in a line of so many kB that begins like this.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

/// The files that tell the limits of the groups in `/proc/self/cgroup`, and of those around them; both versions of
/// control groups. In a container the group is the root of what can be seen.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            names if names.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(group.trim_start_matches('/'));
        files.extend(group.ancestors().map(|group| Path::new(root).join(group).join(file)));
    }
    files
}

/// The bytes in such a file; `None`: no limit.
fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_tells_its_memory() {
        let text = "MemTotal:       24585028 kB\nMemFree:        12914540 kB\n";
        assert_eq!(total(text), Some(24_585_028 * 1_024));
        assert_eq!(total("MemFree: 5 kB\n"), None);
        #[cfg(target_os = "linux")]
        {
            let resident = resident().unwrap();
            assert!(resident > 1 << 20 && memory().unwrap() > resident);
        }
    }

    #[test]
    fn groups_of_both_versions_have_limits_in_files_of_their_own() {
        let files =
            |text| limit_files(text).iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(
            files("0::/user.slice/job\n"),
            [
                "/sys/fs/cgroup/user.slice/job/memory.max",
                "/sys/fs/cgroup/user.slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(
            files("5:cpu,cpuacct:/a\n4:memory:/docker/1\n"),
            [
                "/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes"
            ]
        );
        assert_eq!((limit("536870912\n"), limit("max\n")), (Some(536_870_912), None));
    }
}
