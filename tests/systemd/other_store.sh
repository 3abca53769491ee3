# Runs an embedded store on port 9000, deposits a bundle into it, and prints what was deposited.
install -d -o store -g store -m 700 /var/lib/other
systemd-run --quiet --unit=other -p User=store -p WorkingDirectory=/srv/store \
    -p Environment="STORE_HOME=/var/lib/other STORE_PORT=9000 PATH=/opt/store/bin:/usr/bin:/bin" \
    /opt/store/bin/python -m ops run
until [ -e /var/lib/other/ready.json ]; do
    systemctl --quiet is-active other
    sleep 0.5
done
store() {
    PYTHONPATH=/srv/store/client /opt/store/bin/python -c \
        'import sys; from store_client.cli.main import main; sys.exit(main())' "$@"
}
cd "$(mktemp -d)"
mkdir bundle
echo '{"tissue": "liver"}' >bundle/specimen.json
store login --url http://127.0.0.1:9000 --profile other --access-token - \
    </var/lib/other/admin.token >login.log 2>&1
store upload bundle --quiet
