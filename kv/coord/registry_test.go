package coord_test

import (
	"context"
	"iter"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/kv/coord"
)

// describe says what changed, and what there is.
func describe(i coord.Instances) string {
	var b strings.Builder
	for _, part := range []struct {
		sign      string
		instances []coord.Instance
	}{{"+", i.Added}, {"~", i.Changed}, {"-", i.Removed}, {"=", i.All}} {
		for _, instance := range part.instances {
			b.WriteString(part.sign + instance.ID + "@" + instance.Address + " ")
		}
	}
	return strings.TrimSpace(b.String())
}

// Instances are found while they are registered, and every change is seen.
func TestService(t *testing.T) {
	w := begin(t)
	p := w.proxied()
	watcher := w.clientAt(p.endpoints(), coord.AttemptTimeout(1e9))
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	next, stop := iter.Pull2(watcher.Service("s").Watch(ctx))
	defer stop()
	expect := func(want string) {
		t.Helper()
		got, err, _ := next()
		w.must(err)
		if describe(got) != want {
			t.Fatalf("%q; want %q", describe(got), want)
		}
	}
	expect("")
	v := w.admin.Service("s")
	s := w.session(w.admin)
	a, err := v.Register(w.ctx, s, coord.Instance{ID: "a", Address: "1"})
	w.must(err)
	expect("+a@1 =a@1")
	dying := w.client()
	b, err := dying.Service("s").Register(w.ctx, w.session(dying, coord.TTL(2e9)),
		coord.Instance{ID: "b", Address: "2", Metadata: map[string]string{"zone": "x"}})
	w.must(err)
	expect("+b@2 =a@1 =b@2")
	w.must(a.Update(w.ctx, coord.Instance{Address: "3"}))
	expect("~a@3 =a@3 =b@2")
	_, err = v.Register(w.ctx, s, coord.Instance{ID: "b"})
	w.is(err, coord.ErrExists)
	w.must(dying.Close())
	expect("-b@2 =a@3")
	w.is(b.Deregister(w.ctx), coord.ErrSessionEnded)

	// Cut off, it sees afterwards what has changed, also if the history is gone.
	p.cut()
	w.must(a.Deregister(w.ctx))
	for _, id := range []string{"a", "c"} {
		_, err = v.Register(w.ctx, s, coord.Instance{ID: id, Address: "4"})
		w.must(err)
	}
	w.compact()
	p.mend()
	expect("+c@4 ~a@4 =a@4 =c@4")
	found, err := v.Lookup(w.ctx)
	w.must(err)
	if len(found) != 2 || found[0].ID != "a" || found[1].Address != "4" {
		t.Errorf("%+v", found)
	}
	named, err := v.Register(w.ctx, s, coord.Instance{})
	w.must(err)
	if named.ID() == "" {
		t.Error("it has no id")
	}
}
