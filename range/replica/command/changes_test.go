package command

import (
	"testing"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// TestChanges: the versions up to the view's timestamp, by timestamp; what is known to be quiet is
// left out; and the answer says up to when a version with commit wait was seen.
func TestChanges(t *testing.T) {
	state, d := newState(t)
	ask := func(c *kvpb.ChangesRequest, view View) (*kvpb.ChangesResponse, View) {
		t.Helper()
		q := &kvpb.Request{Command: &kvpb.Request_Changes{Changes: c}}
		if _, problem := Changes.CheckRead(d, q); problem != nil {
			t.Fatal(problem.Text)
		}
		view.State, view.Descriptor, view.Partition = state, d, onlyState{}
		response, err := Changes.Read(&view, q)
		if err != nil {
			t.Fatal(err)
		}
		return response.GetChanges(), view
	}
	got, view := ask(&kvpb.ChangesRequest{}, View{At: at(9)})
	want := []struct {
		key     string
		at      int64
		deleted bool
	}{{"a", 1, false}, {"b", 1, false}, {"b", 3, true}, {"c", 5, false}}
	if len(got.Changes) != len(want) || got.More || wire.FromTimestamp(got.Resolved) != at(9) {
		t.Fatalf("got %v", got)
	}
	for i, w := range want {
		c := got.Changes[i]
		if string(c.Key) != w.key || wire.FromTimestamp(c.Version) != at(w.at) ||
			c.Deleted != w.deleted || c.Deleted != (len(c.Value) == 0) {
			t.Errorf("change %d is %v, not %v", i, c, w)
		}
	}
	if view.Seen != at(5) {
		t.Errorf("c waits for all clocks to pass 5, not %s", view.Seen)
	}
	if got, view := ask(&kvpb.ChangesRequest{After: wire.ToTimestamp(at(1))},
		View{At: at(4), Since: at(3)}); len(got.Changes) != 0 || !view.Seen.IsZero() {
		t.Errorf("above 3 and up to 4: %v, seen %s", got.Changes, view.Seen)
	}
	got, _ = ask(&kvpb.ChangesRequest{LimitBytes: 1}, View{At: at(9)})
	if len(got.Changes) != 1 || !got.More || string(got.Resume) != "b" || got.ResumeVersion != nil {
		t.Errorf("a first page of one byte is %v", got)
	}
	got, _ = ask(&kvpb.ChangesRequest{Start: []byte("b"), ResumeVersion: wire.ToTimestamp(at(1)),
		LimitBytes: 1}, View{At: at(9)})
	if len(got.Changes) != 1 || !got.Changes[0].Deleted || string(got.Resume) != "c" {
		t.Errorf("behind b of 1 comes %v", got)
	}
	// Small ones take more than their bytes.
	got, _ = ask(&kvpb.ChangesRequest{LimitBytes: 3 * changeOverhead}, View{At: at(9)})
	if len(got.Changes) != 2 || !got.More {
		t.Errorf("a page of %d bytes is %v", 3*changeOverhead, got)
	}
	// What is asked for lies above what can be told: nothing is resolved that was not before.
	got, _ = ask(&kvpb.ChangesRequest{After: wire.ToTimestamp(at(20))}, View{At: at(9)})
	if len(got.Changes) != 0 || wire.FromTimestamp(got.Resolved) != at(20) {
		t.Errorf("above 20: %v", got)
	}
}

// TestChangesThatMakeNoSense are refused.
func TestChangesThatMakeNoSense(t *testing.T) {
	d := partitionUpTo('z')
	for _, c := range []*kvpb.ChangesRequest{
		{After: wire.ToTimestamp(at(5)), Upto: wire.ToTimestamp(at(4))},
		{Start: []byte("b"), End: []byte("a")},
	} {
		q := &kvpb.Request{Command: &kvpb.Request_Changes{Changes: c}}
		if _, problem := Changes.CheckRead(d, q); problem == nil ||
			problem.Code != kvpb.ErrorCode_INVALID_ARGUMENT {
			t.Errorf("%v: %v", c, problem)
		}
	}
}
