//! The control socket against clients that behave and clients that do not.

use super::*;
use crate::control::{Evicted, Rescanned, client};

struct Fake;

impl Handler for Fake {
    fn rescan(&self, progress: &mut dyn FnMut(u64)) -> Result<Rescanned, String> {
        thread::sleep(PROGRESS_INTERVAL);
        progress(3);
        Ok(Rescanned { added: 3, ..Rescanned::default() })
    }

    fn evict(&self, _bytes: u64, _progress: &mut dyn FnMut(u64)) -> Result<Evicted, String> {
        Err("no evictor".to_string())
    }
}

struct Rig {
    _temp: tempfile::TempDir,
    socket: PathBuf,
}

fn serve() -> Rig {
    let temp = tempfile::tempdir().unwrap();
    let server = Server::bind(&temp.path().join("run"), "volume").unwrap();
    let socket = server.file().path().to_path_buf();
    thread::spawn(move || server.run(Arc::new(Fake)));
    Rig { _temp: temp, socket }
}

fn ping(socket: &Path) -> bool {
    matches!(client::ask(socket, &Request::Ping, &mut |_| {}), Ok(Response::Pong { .. }))
}

#[test]
fn requests_are_answered_with_progress_before_the_end() {
    let rig = serve();
    assert!(ping(&rig.socket));
    let mut seen = Vec::new();
    let found = client::ask(&rig.socket, &Request::Rescan, &mut |files| seen.push(files)).unwrap();
    assert_eq!(found, Response::Rescanned(Rescanned { added: 3, ..Rescanned::default() }));
    assert_eq!(seen, [3]);
    let refused = client::ask(&rig.socket, &Request::Evict { bytes: 1 }, &mut |_| {}).unwrap();
    assert_eq!(refused, Response::Error { message: "no evictor".to_string() });
}

#[test]
fn the_socket_is_its_user_s_alone() {
    let rig = serve();
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&rig.socket), 0o600);
    assert_eq!(mode(rig.socket.parent().unwrap()), 0o700);
}

#[test]
fn nonsense_is_refused_and_harms_nobody() {
    let rig = serve();
    let said = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(&rig.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // The daemon may hang up before it has taken all.
        let _ = stream.write_all(bytes);
        let mut answer = String::new();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    assert!(said(b"{\"command\":\"explode\"}\n").contains("is not understood"));
    assert!(said(&[0xff, 0, b'\n']).contains("is not understood"));
    assert!(said(&vec![b'['; 3000].into_iter().chain([b'\n']).collect::<Vec<u8>>()).contains("is not understood"));
    assert!(said(&[b'x'; REQUEST_BYTES_MAX + 1]).contains("too long"));
    assert_eq!(said(b"{\"command\":"), "");
    let two = said(b"{\"command\":\"ping\"}\n{\"command\":\"ping\"}\n");
    assert_eq!(two.matches("pong").count(), 2, "{two}");
    assert!(ping(&rig.socket));
}

#[test]
fn clients_that_hang_keep_nobody_out_for_long() {
    let rig = serve();
    let hung: Vec<UnixStream> = (0..CONNECTIONS_MAX).map(|_| UnixStream::connect(&rig.socket).unwrap()).collect();
    let began = Instant::now();
    let mut refused = 0;
    while !ping(&rig.socket) {
        refused += 1;
        assert!(began.elapsed() < LINE_BOUND * 3, "a hung client holds its place for ever");
        thread::sleep(Duration::from_millis(50));
    }
    assert!(refused > 0, "one too many is told so");
    drop(hung);
}

#[test]
fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("run");
    let first = Server::bind(&dir, "v").unwrap();
    let second = Server::bind(&dir, "v").unwrap();
    assert_ne!(first.file().path(), second.file().path());
    let path = first.file().path().to_path_buf();
    let stale = first.file().clone();
    drop(first);
    thread::sleep(Duration::from_millis(20));
    let third = Server::bind(&dir, "v").unwrap();
    assert_eq!(third.file().path(), path);
    stale.remove();
    assert!(path.exists(), "a file of somebody else is not removed");
    third.file().remove();
    assert!(!path.exists());
}

#[test]
fn a_directory_of_somebody_else_is_not_used() {
    let temp = tempfile::tempdir().unwrap();
    let link = temp.path().join("link");
    std::os::unix::fs::symlink(temp.path(), &link).unwrap();
    assert!(Server::bind(&link, "v").is_err());
    let file = temp.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(Server::bind(&file, "v").is_err());
}
