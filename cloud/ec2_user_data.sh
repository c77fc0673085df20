#!/bin/bash
# User data of an EC2 spot machine (Deep Learning AMI, Ubuntu): mounts a file system that outlives the machine, sets up and
# trains. Fill in the first lines, then give this file to a launch template or to
#
#     aws ec2 run-instances --user-data file://cloud/ec2_user_data.sh --instance-market-options MarketType=spot …
#
# The next machine with the same user data continues the run: a fleet or group of size 1 that "maintains" its size starts it.
# A machine that was stopped and starts again continues by itself.
set -euo pipefail

REPOSITORY=${REPOSITORY:-https://example.com/you/metta_fast.git}
FILE_SYSTEM=${FILE_SYSTEM:-fs-0123456789abcdef0.efs.eu-west-1.amazonaws.com} # EFS, in the machine's region
NAME=${NAME:-job}
ENVIRONMENT=${ENVIRONMENT:-grid_rooms}
WORDS=${WORDS:-trainer.total_timesteps=1000000000}

USER_NAME=${USER_NAME:-ubuntu}
CHECKOUT=${CHECKOUT:-/home/ubuntu/metta_fast}
RUNS=${RUNS:-/mnt/runs}
UNIT=${UNIT:-/etc/systemd/system/metta_fast.service}

mkdir -p "$RUNS"
grep -q " $RUNS nfs" /etc/fstab ||
    echo "$FILE_SYSTEM:/ $RUNS nfs4 nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport,_netdev 0 0" \
        >>/etc/fstab
mountpoint -q "$RUNS" || mount "$RUNS"
chown "$USER_NAME:" "$RUNS"
[ -e "$CHECKOUT" ] || sudo -u "$USER_NAME" git clone --depth 1 "$REPOSITORY" "$CHECKOUT"

# Not started again: 0 trained to the end, 2 a mistake in the words above, 143 the machine ends.
cat >"$UNIT" <<EOF
[Unit]
Description=metta_fast trains $NAME
Wants=network-online.target
After=network-online.target remote-fs.target
RequiresMountsFor=$RUNS

[Service]
User=$USER_NAME
WorkingDirectory=$CHECKOUT
Environment="RUNS=$RUNS" "NAME=$NAME" "ENVIRONMENT=$ENVIRONMENT"
ExecStart=$CHECKOUT/cloud/train.sh run.dashboard=plain $WORDS
Restart=on-failure
RestartSec=10
RestartPreventExitStatus=2 143
KillMode=mixed
TimeoutStopSec=90

[Install]
WantedBy=multi-user.target
EOF
systemctl daemon-reload
systemctl enable --now metta_fast.service
