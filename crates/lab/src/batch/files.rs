//! The files that come with a list of versions: copied into the batch once, so that every build gets what
//! was hashed, whatever becomes of them meanwhile.

use super::{BatchError, io_error, product};
use std::fs;
use std::path::Path;

/// Takes the files into the batch, where they lie in `kept`; one hash over them. None are given to builds
/// without any.
///
/// # Errors
///
/// They are not those of which the hash is `known`, cannot be read, or hold the batch itself.
pub(super) fn take(
    from: Option<&Path>,
    kept: &Path,
    known: Option<&str>,
) -> Result<String, BatchError> {
    let draft = kept.with_extension("new");
    remove(&draft)?;
    fs::create_dir_all(&draft).map_err(io_error("making", &draft))?;
    if let Some(from) = from {
        let whole = from.canonicalize().map_err(io_error("finding", from))?;
        if kept.starts_with(&whole) {
            return Err(BatchError::Asked(format!(
                "`files` is {}, which holds the batch itself; choose an --out outside of it",
                from.display()
            )));
        }
        copy(&whole, &draft)?;
    }
    // What was copied, and not what lies there, which may change at any time.
    let hash = product::hash(&draft).map_err(io_error("reading", &draft))?;
    if known.is_some_and(|known| known != hash) {
        remove(&draft)?;
        let from = from.map_or(String::new(), |from| from.display().to_string());
        return Err(BatchError::Asked(format!(
            "the files in {from} are not those that the batch was begun with, and figures of both would \
             be mixed up; put them back, or choose another --out"
        )));
    }
    if known.is_some() && product::hash(kept).is_ok_and(|kept| kept == hash) {
        // A kill between the two steps below would leave none.
        remove(&draft)?;
        return Ok(hash);
    }
    remove(kept)?;
    fs::rename(&draft, kept).map_err(io_error("moving the files to", kept))?;
    Ok(hash)
}

/// Gives the files that were taken to a build, which may change its own copy.
pub(super) fn give(kept: &Path, sources: &Path) -> Result<(), BatchError> {
    remove(sources)?;
    fs::create_dir_all(sources).map_err(io_error("making", sources))?;
    copy(kept, sources)
}

fn remove(folder: &Path) -> Result<(), BatchError> {
    match folder.exists() {
        true => fs::remove_dir_all(folder).map_err(io_error("removing", folder)),
        false => Ok(()),
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), BatchError> {
    let entries = fs::read_dir(from).map_err(io_error("reading", from))?;
    for entry in entries {
        let entry = entry.map_err(io_error("reading", from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            fs::create_dir_all(&target).map_err(io_error("making", &target))?;
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target).map_err(io_error("copying", &path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn builds_get_what_was_hashed_whatever_becomes_of_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let [mine, kept, sources] = ["mine", "batch.files", "source"].map(|n| dir.path().join(n));
        fs::create_dir_all(mine.join("sub")).unwrap();
        fs::write(mine.join("sub/make.sh"), "one").unwrap();
        let hash = take(Some(&mine), &kept, None).unwrap();
        fs::write(mine.join("sub/make.sh"), "two").unwrap();
        give(&kept, &sources).unwrap();
        assert_eq!(fs::read_to_string(sources.join("sub/make.sh")).unwrap(), "one");
        assert_eq!(product::hash(&sources).unwrap(), hash);
        // Taken up again, they have to be the same; what was kept stays.
        let error = take(Some(&mine), &kept, Some(&hash)).unwrap_err().to_string();
        assert!(error.contains("are not those that the batch was begun with"), "{error}");
        assert_eq!(fs::read_to_string(kept.join("sub/make.sh")).unwrap(), "one");
        fs::write(mine.join("sub/make.sh"), "one").unwrap();
        let place = fs::metadata(&kept).unwrap().ino();
        assert_eq!(take(Some(&mine), &kept, Some(&hash)).unwrap(), hash);
        assert_eq!(fs::metadata(&kept).unwrap().ino(), place, "it stays where it is");
        // Of one that is not whole any more, it takes the place.
        fs::remove_file(kept.join("sub/make.sh")).unwrap();
        assert_eq!(take(Some(&mine), &kept, Some(&hash)).unwrap(), hash);
        assert_eq!(product::hash(&kept).unwrap(), hash);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "no draft is left");
    }

    #[test]
    fn a_folder_is_not_copied_into_itself() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let error = take(Some(&dir), &dir.join("batch/files"), None).unwrap_err().to_string();
        assert!(error.contains("holds the batch itself"), "{error}");
    }
}
