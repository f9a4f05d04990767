# A private RabbitMQ node on the loopback; its epmd ends when it does, also by KILL. `cargo xtask services` runs it too.
#   sh node.sh serve <home> <port> <port of the distribution> <port of epmd>
#   sh node.sh control <home> <arguments of rabbitmqctl>
set -eu
bin=/usr/lib/rabbitmq/bin
what=$1 home=$2
shift 2

if [ "$what" = control ]; then
    . "$home/settings"
    exec "$bin/rabbitmqctl" "$@"
fi

# Before the settings: a control that is too early, by another user, would make a cookie that the node cannot read.
if [ ! -e "$home/.erlang.cookie" ]; then
    od -An -N16 -tx1 /dev/urandom | tr -d ' \n' > "$home/.erlang.cookie"
    chmod 400 "$home/.erlang.cookie"
fi
cat > "$home/settings" <<END
export HOME='$home' RABBITMQ_NODENAME='pillarbox-$1@localhost'
export ERL_EPMD_PORT='$3' ERL_EPMD_ADDRESS=127.0.0.1 RABBITMQ_CONF_ENV_FILE=/dev/null
# Otherwise node and control start an epmd where they find none, and that one outlives them.
export ERL_AFLAGS='-start_epmd false'
END
. "$home/settings"
cat > "$home/rabbitmq.conf" <<END
max_message_size = 1048576
END
echo '[rabbitmq_amqp1_0].' > "$home/plugins"
export RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT="$1" RABBITMQ_DIST_PORT="$2"
export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}'
export RABBITMQ_CONFIG_FILE="$home/rabbitmq" RABBITMQ_ENABLED_PLUGINS_FILE="$home/plugins"
export RABBITMQ_MNESIA_BASE="$home/mnesia" RABBITMQ_LOG_BASE="$home/logs" RABBITMQ_LOGS=-
# Otherwise a shell stays between, and a signal would end that instead of the node.
export RUNNING_UNDER_SYSTEMD=true

setpriv --pdeathsig KILL -- epmd -port "$3" -address 127.0.0.1 &
until epmd -port "$3" -names > /dev/null 2>&1; do sleep 0.05; done
exec "$bin/rabbitmq-server"
