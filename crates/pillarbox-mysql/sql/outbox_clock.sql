-- What the server's clock shows, in UTC, whatever the session's time zone. An alarm on a clock that was set asks this.
SELECT UTC_TIMESTAMP(6)
