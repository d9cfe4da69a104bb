//! Extended attributes of a mount, with sentences for what can go wrong.

use std::path::Path;

use rustix::fs::{getxattr, lgetxattr};
use rustix::io::Errno;

use crate::error::SetupError;

/// Sizes tried; an attribute of the kernel's own bound fits the last one.
const SIZES: [usize; 3] = [4 * 1024, 64 * 1024, 1024 * 1024];

/// The value of an attribute of a mount's root. `Err` names the mount point and what is wrong with it.
pub fn of_root(mountpoint: &Path, name: &str) -> Result<String, SetupError> {
    let not_kvspan =
        |detail: &str| SetupError::NotKvspan { path: mountpoint.to_path_buf(), detail: detail.to_string() };
    match grow(|buffer| getxattr(mountpoint, name, buffer)) {
        Ok(value) => String::from_utf8(value).map_err(|_| not_kvspan(": its answer is not text")),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Err(not_kvspan("")),
        Err(Errno::NOTCONN) => Err(SetupError::DeadMount { path: mountpoint.to_path_buf() }),
        Err(errno) => Err(SetupError::io("ask the mount", mountpoint, errno)),
    }
}

/// The value of an attribute of a file, `None` if there is no such file or attribute.
pub fn of_file(path: &Path, name: &str) -> Result<Option<String>, Errno> {
    match grow(|buffer| lgetxattr(path, name, buffer)) {
        Ok(value) => Ok(Some(String::from_utf8_lossy(&value).into_owned())),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NODATA | Errno::NAMETOOLONG) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Asks with a larger buffer while the value does not fit.
fn grow(get: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    for size in SIZES {
        let mut buffer = vec![0; size];
        match get(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(Errno::RANGE) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::RANGE)
}
