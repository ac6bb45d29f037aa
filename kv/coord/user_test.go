package coord_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
	"github.com/tidemarkdb/tidemark/kv/coord"
)

// Where users have to say who they are, one with a password can do all, sessions are renewed, and
// one with another password is refused.
func TestUser(t *testing.T) {
	w := begin(t)
	s, err := reference.Start(w.ctx, reference.Options{Args: []string{"--unsafe-no-fsync"}})
	w.must(err)
	w.Cleanup(func() { s.Close() })
	open := w.clientAt(s.Endpoints())
	users := open.Etcd().Auth
	_, err = users.UserAdd(w.ctx, "root", "secret")
	w.must(err)
	_, err = users.UserGrantRole(w.ctx, "root", "root")
	w.must(err)
	_, err = users.RoleAdd(w.ctx, "locks")
	w.must(err)
	for _, key := range []string{"lock/", "session/"} {
		_, err = users.RoleGrantPermission(w.ctx, "locks", w.prefix+key,
			clientv3.GetPrefixRangeEnd(w.prefix+key), clientv3.PermissionType(clientv3.PermReadWrite))
		w.must(err)
	}
	_, err = users.UserAdd(w.ctx, "ada", "lovelace")
	w.must(err)
	_, err = users.UserGrantRole(w.ctx, "ada", "locks")
	w.must(err)
	_, err = users.AuthEnable(w.ctx)
	w.must(err)

	client := w.clientAt(s.Endpoints(), coord.User("ada", "lovelace"))
	session := w.session(client, coord.TTL(2e9))
	lock, err := client.Mutex("m").Lock(w.ctx, session)
	w.must(err)
	begun := time.Now()
	w.until("it has been renewed", func() bool { return time.Since(begun) > 3*session.TTL()/2 })
	w.must(session.Err())
	w.must(lock.Unlock(w.ctx))
	if _, err := client.Election("e").Campaign(w.ctx, session, nil); err == nil {
		t.Error("a user without the permission campaigned")
	}
	w.must(session.Err())
	for _, options := range [][]coord.Option{{coord.User("ada", "byron")}, nil} {
		if _, err := coord.Connect(w.ctx, s.Endpoints(), options...); err == nil {
			t.Error("connected without the password")
		}
	}
}
