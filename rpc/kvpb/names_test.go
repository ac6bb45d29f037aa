package kvpb

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

func TestEveryCommandHasItsName(t *testing.T) {
	cases := (&Request{}).ProtoReflect().Descriptor().Oneofs().ByName("command").Fields()
	for i := range cases.Len() {
		q := &Request{}
		m := q.ProtoReflect()
		m.Set(cases.Get(i), protoreflect.ValueOfMessage(m.NewField(cases.Get(i)).Message()))
		if q.CommandName() != string(cases.Get(i).Name()) {
			t.Errorf("%s is named %s", cases.Get(i).Name(), q.CommandName())
		}
	}
	if name := (&Request{}).CommandName(); name != "none" {
		t.Errorf("no command is named %s", name)
	}
	if name := (&Request{Call: &Call{}}).CommandName(); name != "call" {
		t.Errorf("a call is named %s", name)
	}
}
