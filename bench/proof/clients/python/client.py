"""What python3-etcd3 offers, against the servers of ENDPOINTS. The client knows one server: the
last, which is not the one that is killed. With PASSED_ON that server passes streams on to a member,
and a stream may end with the member."""

import os
import queue
import sys
import time

import etcd3
import grpc

host, port = os.environ["ENDPOINTS"].split(",")[-1].split(":")
client = etcd3.client(host=host, port=int(port), timeout=30)


def equal(what, got, want):
    if got != want:
        sys.exit(f"{what}: got {got!r}, want {want!r}")


def use(at):
    client.put(f"{at}/a", "1")
    equal("get", client.get(f"{at}/a")[0], b"1")
    equal("put of what exists", client.put_if_not_exists(f"{at}/a", "2"), False)
    equal("replace", client.replace(f"{at}/a", "1", "3"), True)
    done, answers = client.transaction(
        compare=[client.transactions.value(f"{at}/a") == "3",
                 client.transactions.version(f"{at}/a") > 1],
        success=[client.transactions.put(f"{at}/b", "4"),
                 client.transactions.get(f"{at}/b")],
        failure=[client.transactions.delete(f"{at}/a")])
    equal("transaction", done, True)
    equal("get in it", answers[1][0][0], b"4")
    equal("prefix", [v for v, _ in client.get_prefix(f"{at}/")], [b"3", b"4"])
    equal("delete", client.delete(f"{at}/a"), True)
    lease = client.lease(60)
    client.put(f"{at}/leased", "x", lease=lease)
    equal("renewal", lease.refresh()[0].TTL, 60)
    equal("keys of a lease", list(lease.keys), [f"{at}/leased".encode()])
    lease.revoke()
    equal("get after the lease", client.get(f"{at}/leased")[0], None)
    with client.lock(f"{at}/lock", ttl=30) as lock:
        equal("lock", lock.is_acquired(), True)
        other = client.lock(f"{at}/lock", ttl=30)
        equal("lock of what is locked", other.acquire(timeout=0), False)


use("before")
equal("members", len(list(client.members)), 3)
events = queue.Queue()


def watched(response):
    if isinstance(response, Exception):
        events.put(response)
        return
    for event in response.events:
        events.put(event.value)


watch = client.add_watch_callback("watched", watched)
client.put("watched", "one")
seen = client.get("watched")[1].mod_revision
equal("watch", events.get(timeout=30), b"one")
client.put("kept", "yes")
print("KILL", flush=True)
sys.stdin.readline()
# While there is no leader, a call may fail: it is for the program to ask again.
began = time.monotonic()
while True:
    try:
        client.put("watched", "two")
        break
    except etcd3.Etcd3Exception as error:
        if time.monotonic() - began > 30:
            sys.exit(f"no answer after a server was killed: {error!r}")
event = events.get(timeout=30)
if (os.environ.get("PASSED_ON") and isinstance(event, grpc.RpcError)
        and event.code() == grpc.StatusCode.UNAVAILABLE):
    # The package watches no more then, as with a server that is killed: a program begins again
    # where it was.
    watch = client.add_watch_callback("watched", watched, start_revision=seen + 1)
    event = events.get(timeout=30)
equal("watch after a kill", event, b"two")
use("after")
equal("what was put before", client.get("kept")[0], b"yes")
client.cancel_watch(watch)
