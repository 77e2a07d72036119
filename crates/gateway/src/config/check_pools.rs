//! Pools as they are written, checked.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::time::Duration;

use super::check::{address, in_range, line, non_zero, time};
use super::check_routes::{header_name, is_path};
use super::error::Fault;
use super::file::{BackendFile, BalanceFile, EjectionFile, HashByFile, HealthFile, PoolFile};
use super::text::At;
use super::{ActiveHealth, Backend, Balance, Ejection, HashBy, Pool};

/// The most backends of a pool: each choice looks at all of them.
const BACKENDS_MAX: usize = 1024;
/// The highest weight.
const WEIGHT_MAX: u32 = 1000;
/// The most retries.
const RETRIES_MAX: u32 = 10;
/// The most answers in a row that a judgement may ask for.
const ROW_MAX: u32 = 1000;

const HEALTH_INTERVAL: Duration = Duration::from_secs(5);
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
const HEALTH_RISE: u32 = 2;
const HEALTH_FALL: u32 = 3;
const EJECT_FAILURES: u32 = 5;
const EJECT_FOR: Duration = Duration::from_secs(10);

/// The pools that are asked for, and what each thread has of their limits.
pub(super) fn pools(
    files: &At<Vec<PoolFile>>,
    folder: &Path,
    threads: NonZeroUsize,
) -> Result<Vec<Pool>, Fault> {
    if files.is_empty() {
        return Err(Fault::at(&files.0, "there is no pool; name at least one backend"));
    }
    let mut pools: Vec<Pool> = Vec::with_capacity(files.len());
    for file in files.iter() {
        if let Some(first) = pools.iter().position(|pool| pool.name == *file.name) {
            return Err(Fault::at(
                &file.name.0,
                format!(
                    "there is a pool `{}` already, in line {}; give one of them another name",
                    *file.name,
                    line(&files[first].name.0)
                ),
            ));
        }
        pools.push(pool(file, folder, threads)?);
    }
    Ok(pools)
}

fn pool(file: &PoolFile, folder: &Path, threads: NonZeroUsize) -> Result<Pool, Fault> {
    if file.name.is_empty() || file.name.chars().any(char::is_control) {
        return Err(Fault::at(&file.name.0, "a pool needs a name, of one line"));
    }
    let retries = match &file.retries {
        Some(retries) => in_range(retries, 0, RETRIES_MAX)?,
        None => Pool::RETRIES,
    };
    Ok(Pool {
        name: (*file.name).clone(),
        balance: balance(&file.balance)?,
        backends: backends(&file.backends, folder)?,
        keepalive_max: file.keepalive_max.div_ceil(threads.get()),
        connections_max: file
            .connections_max
            .as_ref()
            .map(|count| connections_max(count, threads))
            .transpose()?,
        queue_max: file.queue_max.div_ceil(threads.get()),
        queue_timeout: time(&file.queue_timeout)?,
        health: file.health.as_ref().map(health).transpose()?,
        eject: file.eject.as_ref().map(ejection).transpose()?,
        retries,
    })
}

fn balance(file: &BalanceFile) -> Result<Balance, Fault> {
    Ok(match file {
        BalanceFile::RoundRobin => Balance::RoundRobin,
        BalanceFile::LeastConnections => Balance::LeastConnections,
        BalanceFile::RandomOfTwo => Balance::RandomOfTwo,
        BalanceFile::ConsistentHash(HashByFile::Client) => {
            Balance::ConsistentHash { by: HashBy::Client }
        }
        BalanceFile::ConsistentHash(HashByFile::Header(name)) => {
            header_name(name.as_str(), name)?;
            Balance::ConsistentHash { by: HashBy::Header(name.to_ascii_lowercase()) }
        }
    })
}

/// What each thread has of a limit on connections. Rounded down, so that it holds for all together.
fn connections_max(count: &At<u32>, threads: NonZeroUsize) -> Result<NonZeroU32, Fault> {
    let count_checked = non_zero(count, u32::MAX)?;
    let threads = u32::try_from(threads.get()).unwrap_or(u32::MAX);
    NonZeroU32::new(count_checked.get() / threads).ok_or_else(|| {
        let message = format!(
            "{count_checked} connections cannot be shared by {threads} threads; allow at least one each"
        );
        Fault::at(&count.0, message)
    })
}

fn backends(files: &At<Vec<BackendFile>>, folder: &Path) -> Result<Vec<Backend>, Fault> {
    if !(1..=BACKENDS_MAX).contains(&files.len()) {
        let message = format!("a pool has from 1 to {BACKENDS_MAX} backends, not {}", files.len());
        return Err(Fault::at(&files.0, message));
    }
    let mut backends: Vec<Backend> = Vec::with_capacity(files.len());
    for file in files.iter() {
        let address = address(&file.address, folder)?;
        if let Some(first) = backends.iter().position(|backend| backend.address == address) {
            return Err(Fault::at(
                &file.address.0,
                format!(
                    "the pool has the backend `{}` already, in line {}; leave one of them, with a \
                     higher weight",
                    *file.address,
                    line(&files[first].address.0)
                ),
            ));
        }
        let weight = match &file.weight {
            Some(weight) => in_range(weight, 0, WEIGHT_MAX)?,
            None => 1,
        };
        backends.push(Backend { address, weight });
    }
    if backends.iter().all(|backend| backend.weight == 0) {
        return Err(Fault::at(
            &files.0,
            "every backend has the weight 0, so that none would get a request; give one a weight",
        ));
    }
    Ok(backends)
}

fn health(file: &HealthFile) -> Result<ActiveHealth, Fault> {
    if !is_path(&file.path) {
        let message = format!(
            "`{}` is no path; it begins with / and has no spaces or control characters",
            *file.path
        );
        return Err(Fault::at(&file.path.0, message));
    }
    let interval = file.interval.as_ref().map_or(Ok(HEALTH_INTERVAL), time)?;
    let timeout = match &file.timeout {
        Some(timeout) if timeout.0.value.0 > interval => {
            let message = "a check may not last longer than it is to the next one; choose a shorter \
                           timeout or a longer interval";
            return Err(Fault::at(&timeout.0, message));
        }
        Some(timeout) => time(timeout)?,
        None => HEALTH_TIMEOUT.min(interval),
    };
    let row = |count: &Option<At<u32>>, usual| match count {
        Some(count) => in_range(count, 1, ROW_MAX),
        None => Ok(usual),
    };
    Ok(ActiveHealth {
        path: (*file.path).clone(),
        interval,
        timeout,
        rise: row(&file.rise, HEALTH_RISE)?,
        fall: row(&file.fall, HEALTH_FALL)?,
    })
}

fn ejection(file: &EjectionFile) -> Result<Ejection, Fault> {
    Ok(Ejection {
        failures: match &file.failures {
            Some(failures) => in_range(failures, 1, ROW_MAX)?,
            None => EJECT_FAILURES,
        },
        for_time: file.for_time.as_ref().map_or(Ok(EJECT_FOR), time)?,
    })
}
