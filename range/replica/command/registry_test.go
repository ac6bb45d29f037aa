package command

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// TestEveryRequestHasACommand: each case of the protocol's oneof has a command with all that its
// way of being served needs, and a name of its own.
func TestEveryRequestHasACommand(t *testing.T) {
	names := map[string]bool{}
	cases := (&kvpb.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("command").Fields()
	for i := range cases.Len() {
		field := cases.Get(i)
		q := &kvpb.Request{}
		m := q.ProtoReflect()
		m.Set(field, protoreflect.ValueOfMessage(m.NewField(field).Message()))
		c := Of(q)
		if c.Dispatch == NotKnown {
			t.Errorf("%s has no command", field.Name())
			continue
		}
		if names[c.Name] || All()[c.Index()] != c {
			t.Errorf("%s: the name or the index of %s is not its own", field.Name(), c.Name)
		}
		names[c.Name] = true
		if c.Body == nil {
			t.Errorf("%s: it is not said when it is whole", c.Name)
		}
		switch c.Dispatch {
		case AtTimestamp:
			if c.Footprint == nil || c.CheckRead == nil || c.Read == nil {
				t.Errorf("%s: a read needs Footprint, CheckRead and Read", c.Name)
			}
		case InQueue:
			if c.CheckWrite == nil || c.Evaluate == nil || c.Footprint == nil && !c.Transactional {
				t.Errorf("%s: a write needs CheckWrite and Evaluate, and a Footprint if it does not look "+
					"at locks itself", c.Name)
			}
		}
		if got := c.LatestNamed(q); got != 0 {
			t.Errorf("%s: an empty request names %d", c.Name, got)
		}
	}
	if len(names) != len(All())-1 {
		t.Errorf("%d requests and %d commands", len(names), len(All())-1)
	}
}

// TestNoCommand: a request without a command, and one without contents, are of no kind.
func TestNoCommand(t *testing.T) {
	for _, q := range []*kvpb.Request{{}, {Command: &kvpb.Request_Get{}},
		{Command: &kvpb.Request_Prepare{}}} {
		if c := Of(q); c != Unknown() || c.Dispatch != NotKnown {
			t.Errorf("%v is a %s", q, c.Name)
		}
	}
	if Of(&kvpb.Request{Command: &kvpb.Request_Now{}}) != Now {
		t.Error("a question for the time needs no contents")
	}
}
