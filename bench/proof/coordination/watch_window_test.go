package coordination

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// answer makes a response to a watcher with puts at revisions.
func answer(header int64, changes ...told) clientv3.WatchResponse {
	r := clientv3.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: header}}
	for _, c := range changes {
		e := &clientv3.Event{Kv: &mvccpb.KeyValue{Key: []byte(c.key), Value: []byte(c.value),
			ModRevision: c.revision, Version: 1}}
		if c.deleted {
			e.Type = clientv3.EventTypeDelete
			e.PrevKv = &mvccpb.KeyValue{Key: []byte(c.key), ModRevision: 1}
		}
		r.Events = append(r.Events, e)
	}
	return r
}

func put(key, value string, revision int64) told {
	return told{change{key: key, value: value}, revision}
}

// Each mistake in the changes that a watcher receives is noticed, either alone or compared with the
// writes.
func TestWatchersMistakesAreNoticed(t *testing.T) {
	for name, test := range map[string]struct {
		answers []clientv3.WatchResponse
		want    string
	}{
		"right": {[]clientv3.WatchResponse{answer(5, put("p/a", "1", 5), put("p/b", "2", 5)),
			answer(9), answer(10, put("p/a", "3", 10))}, ""},
		"an event that is missing": {[]clientv3.WatchResponse{answer(10, put("p/a", "3", 10))},
			"was told [] of revision 5"},
		"a part of a revision": {[]clientv3.WatchResponse{answer(5, put("p/a", "1", 5)),
			answer(10, put("p/a", "3", 10))}, "was told [p/a = 1] of revision 5"},
		"an event that comes twice": {[]clientv3.WatchResponse{
			answer(5, put("p/a", "1", 5), put("p/b", "2", 5)), answer(5, put("p/b", "2", 5))},
			"comes late"},
		"progress that is told early": {[]clientv3.WatchResponse{answer(5),
			answer(5, put("p/a", "1", 5), put("p/b", "2", 5))}, "comes late"},
		"another order": {[]clientv3.WatchResponse{answer(10, put("p/a", "3", 10),
			put("p/a", "1", 5))}, "comes after"},
		"what no client wrote": {[]clientv3.WatchResponse{answer(7, put("p/c", "9", 7))},
			"no client wrote"},
		"what was refused": {[]clientv3.WatchResponse{answer(7, put("p/c", "4", 7))},
			"was refused"},
		"another one's key": {[]clientv3.WatchResponse{answer(7, put("q/c", "4", 7))},
			"none of its"},
		"a write done twice": {[]clientv3.WatchResponse{answer(7, put("p/a", "1", 7))},
			"written once"},
		"an event from ahead": {[]clientv3.WatchResponse{answer(4, put("p/a", "1", 5))}, "header"},
		"what was not told": {[]clientv3.WatchResponse{answer(5, put("p/a", "1", 5),
			put("p/b", "2", 5)), answer(7, put("p/c", "5", 7)), answer(10, put("p/a", "3", 10))}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWatchWindow("p/")
			for revision, changes := range map[int64][]change{
				5:  {{key: "p/a", value: "1"}, {key: "p/b", value: "2"}},
				10: {{key: "p/a", value: "3"}},
			} {
				x.trying(changes, 4)
				x.wrote(revision, changes)
			}
			x.trying([]change{{key: "p/c", value: "4"}}, 4)
			x.failed([]change{{key: "p/c", value: "4"}}, false)
			x.trying([]change{{key: "p/c", value: "5"}}, 4)
			x.failed([]change{{key: "p/c", value: "5"}}, true)
			s := &segment{prefix: "p/", from: 5}
			var complaints []string
			for _, r := range test.answers {
				if why := s.take(r, 0); why != "" {
					complaints = append(complaints, why)
				}
			}
			x.watched(s)
			complaints = append(complaints, x.check()...)
			text := strings.Join(complaints, "\n")
			if test.want == "" && text != "" || !strings.Contains(text, test.want) {
				t.Errorf("the complaints are %q, want %q", text, test.want)
			}
		})
	}
}

// The change at the revision to which history was compacted need not have the previous pair. The
// next change must have it.
func TestPreviousPairsAreCompared(t *testing.T) {
	r := clientv3.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: 6}}
	r.Events = []*clientv3.Event{{
		Kv: &mvccpb.KeyValue{Key: []byte("p/a"), ModRevision: 6, Version: 2}}}
	for compacted, complains := range map[int64]bool{5: true, 6: false} {
		why := (&segment{prefix: "p/", from: 6}).take(r, compacted)
		if (why != "") != complains {
			t.Errorf("with history compacted up to %d: %q", compacted, why)
		}
	}
}

// A read of an old revision is compared with the changes up to it.
func TestOldReadsAreCompared(t *testing.T) {
	for name, test := range map[string]struct {
		found []*mvccpb.KeyValue
		want  string
	}{
		"right": {[]*mvccpb.KeyValue{{Key: []byte("p/a"), Value: []byte("1"), CreateRevision: 5,
			ModRevision: 5, Version: 1}}, ""},
		"lost": {nil, "has not found"},
		"newer": {[]*mvccpb.KeyValue{{Key: []byte("p/a"), Value: []byte("3"), CreateRevision: 5,
			ModRevision: 10, Version: 2}}, "has found"},
		"another version": {[]*mvccpb.KeyValue{{Key: []byte("p/a"), Value: []byte("1"),
			CreateRevision: 5, ModRevision: 5, Version: 2}}, "has found"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWatchWindow("p/")
			x.wrote(5, []change{{key: "p/a", value: "1"}})
			x.wrote(10, []change{{key: "p/a", value: "3"}})
			x.readAt(7, &clientv3.GetResponse{Kvs: test.found})
			text := strings.Join(x.check(), "\n")
			if test.want == "" && text != "" || !strings.Contains(text, test.want) {
				t.Errorf("the complaints are %q, want %q", text, test.want)
			}
		})
	}
}
