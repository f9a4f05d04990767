-- What the server's clock shows at this moment, whenever the transaction began. An alarm on a clock that was set asks this.
SELECT clock_timestamp()
