//! A cache of values that depend on files: they are valid as long as the files stay the same.

use std::collections::HashMap;
use std::hash::Hash;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Caches the value of each key until a file on which it depends changes.
#[derive(Debug)]
pub struct Memo<K, V> {
    known: Mutex<HashMap<K, Known<V>>>,
    check_interval: Duration,
}

#[derive(Debug)]
struct Known<V> {
    kept: V,
    files: Vec<(PathBuf, Option<Stamp>)>,
    checked_at: Instant,
}

/// Identity and state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Time of the last change of its content, since 1970. A program can set it.
    modified: Duration,
    /// Time of the last change of its inode, which no program can set.
    changed: Duration,
}

/// Timestamps of files may lag behind the clock by this much.
const CLOCK_TICK: Duration = Duration::from_millis(20);

/// Form in which a [`Memo`] stores a value.
pub trait Kept {
    type Value;
    fn of(value: &Self::Value) -> Self;
    /// `None`: the value was dropped, or is not stored.
    fn value(&self) -> Option<Self::Value>;
}

impl Kept for usize {
    type Value = Self;

    fn of(value: &Self) -> Self {
        *value
    }

    fn value(&self) -> Option<Self> {
        Some(*self)
    }
}

/// The value is valid while there are other references to it.
impl<T> Kept for Weak<T> {
    type Value = Arc<T>;

    fn of(value: &Arc<T>) -> Self {
        Arc::downgrade(value)
    }

    fn value(&self) -> Option<Arc<T>> {
        self.upgrade()
    }
}

/// `None` is not stored.
impl<T: Kept> Kept for Option<T> {
    type Value = Option<T::Value>;

    fn of(value: &Self::Value) -> Self {
        value.as_ref().map(T::of)
    }

    fn value(&self) -> Option<Self::Value> {
        Some(Some(self.as_ref()?.value()?))
    }
}

impl<K: Clone + Eq + Hash, V: Kept> Memo<K, V> {
    /// Files are compared with those that were read at most once in an interval.
    pub fn new(check_interval: Duration) -> Self {
        Self { known: Mutex::default(), check_interval }
    }

    /// Returns the cached value of the key, or that of `make`, which also returns the files on which it depends.
    pub fn get(
        &self,
        key: &K,
        make: impl FnOnce(&K) -> Result<(V::Value, Vec<PathBuf>), String>,
    ) -> Result<V::Value, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get_mut(key)
            && let Some(value) = known.kept.value()
            && known.is_current(Instant::now(), self.check_interval)
        {
            return Ok(value);
        }
        known.remove(key);
        known.retain(|_, known| known.kept.value().is_some());
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (value, files) = make(key)?;
        let files =
            files.into_iter().map(|path| (stamp(&path), path)).map(|(stamp, path)| (path, stamp));
        let entry =
            Known { kept: V::of(&value), files: files.collect(), checked_at: Instant::now() };
        // A file that changed after it was read already has its new timestamp here: the value is not stored.
        let settled = began.saturating_sub(CLOCK_TICK);
        let is_settled =
            |(_, stamp): &(_, Option<Stamp>)| stamp.is_none_or(|s| s.changed < settled);
        if entry.files.iter().all(is_settled) {
            known.insert(key.clone(), entry);
        }
        Ok(value)
    }
}

impl<V> Known<V> {
    fn is_current(&mut self, now: Instant, check_interval: Duration) -> bool {
        if now.saturating_duration_since(self.checked_at) < check_interval {
            return true;
        }
        self.checked_at = now;
        self.files.iter().all(|(path, known)| stamp(path) == *known)
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = std::fs::metadata(path).ok()?;
    let time = |seconds: i64, nanoseconds: i64| {
        let nanoseconds = u32::try_from(nanoseconds).unwrap_or(0);
        Duration::new(u64::try_from(seconds).unwrap_or(0), nanoseconds)
    };
    Some(Stamp {
        device: file.dev(),
        inode: file.ino(),
        size: file.size(),
        modified: time(file.mtime(), file.mtime_nsec()),
        changed: time(file.ctime(), file.ctime_nsec()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(60);

    #[test]
    fn file_that_changed_is_read_again() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("rules.conf");
        std::fs::write(&path, "a")?;
        let memo: Memo<u8, usize> = Memo::new(INTERVAL);
        let get = |value| memo.get(&0, |_| Ok((value, vec![path.clone()])));
        // Not kept, as the file may have been written after it was read.
        assert_eq!(get(0), Ok(0));
        wait_until_settled(&path);
        assert_eq!(get(1), Ok(1));
        assert_eq!(get(2), Ok(1));
        std::fs::write(&path, "other")?;
        wait_until_settled(&path);
        // The file is compared again once the interval is over.
        let expire = |memo: &Memo<u8, usize>| {
            let mut known = memo.known.lock().unwrap_or_else(PoisonError::into_inner);
            for known in known.values_mut() {
                known.checked_at =
                    known.checked_at.checked_sub(INTERVAL).unwrap_or(known.checked_at);
            }
        };
        assert_eq!(get(3), Ok(1));
        expire(&memo);
        assert_eq!(get(3), Ok(3));
        expire(&memo);
        assert_eq!(get(4), Ok(3));
        // A value that cannot be made is not replaced by the old one.
        std::fs::write(&path, "broken")?;
        expire(&memo);
        let broken = memo.get(&0, |_| Err("broken".to_owned()));
        assert_eq!(broken, Err("broken".to_owned()));
        assert_eq!(get(5), Ok(5));
        Ok(())
    }

    fn wait_until_settled(path: &Path) {
        let written = stamp(path).expect("the file is there").changed;
        while SystemTime::now().duration_since(UNIX_EPOCH).unwrap() <= written + CLOCK_TICK {
            std::thread::yield_now();
        }
    }

    #[test]
    fn value_that_nobody_uses_is_made_again() {
        let memo: Memo<u8, Option<Weak<u8>>> = Memo::new(Duration::ZERO);
        let get = |value: Option<u8>| memo.get(&0, |_| Ok((value.map(Arc::new), Vec::new())));
        let used = get(Some(1)).unwrap();
        assert_eq!(get(Some(2)).unwrap(), used);
        drop(used);
        assert_eq!(get(Some(3)).unwrap().as_deref(), Some(&3));
        assert_eq!(get(None).unwrap(), None);
        assert_eq!(get(Some(4)).unwrap().as_deref(), Some(&4));
    }
}
