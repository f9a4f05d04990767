-- What the machine's clock shows. Not the time that is acted upon, which never goes back: an alarm on a clock that was set
-- asks this.
SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000;
