package coordination

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// toldOf has users and roles, and says whether it is up to date.
type toldOf struct {
	state *authority.State
	err   error
	reads int
}

func (o *toldOf) Authority() *authority.State       { return o.state }
func (o *toldOf) AuthorityChanged() <-chan struct{} { return nil }
func (o *toldOf) AppliedIndex() uint64              { return 7 }
func (o *toldOf) Read(context.Context) (*store.View, error) {
	o.reads++
	return nil, o.err
}

// A member that cannot show that it is up to date answers nothing, and what it tells has no hashes
// of passwords.
func TestToldAuthority(t *testing.T) {
	state, err := authority.New(&storepb.AuthRecord{Revision: 2}, map[string]*storepb.UserRecord{
		"u": {Hash: []byte("hash"), Generation: 2}}, map[string]*storepb.RoleRecord{"r": {
		Permissions: []*storepb.Permission{{Key: []byte("a")}},
		Keyspaces:   []*storepb.KeyspacePermission{{Keyspace: 7, Rights: 1, Key: []byte("a")}}}})
	if err != nil {
		t.Fatal(err)
	}
	of := &toldOf{state: state, err: errors.New("no leader")}
	var sent []*clusterpb.AuthorityUpdate
	told := &toldAuthority{part: of, send: func(u *clusterpb.AuthorityUpdate) error {
		sent = append(sent, u)
		return nil
	}}
	if err := told.answer(t.Context(), 1); err == nil || len(sent) > 0 {
		t.Fatalf("it answers %v, %v", sent, err)
	}
	of.err = nil
	if err := told.answer(t.Context(), 2); err != nil || len(sent) != 1 || sent[0].Answers != 2 ||
		sent[0].Index != 7 || sent[0].Revision != 2 || len(sent[0].Users) != 1 ||
		len(sent[0].Roles) != 1 {
		t.Fatalf("it answers %v, %v", sent, err)
	}
	user, role := &storepb.UserRecord{}, &storepb.RoleRecord{}
	if err := errors.Join(proto.Unmarshal(sent[0].Users[0].Record, user),
		proto.Unmarshal(sent[0].Roles[0].Record, role)); err != nil {
		t.Fatal(err)
	}
	if len(user.Hash) > 0 || user.Generation != 2 || len(role.Permissions) > 0 ||
		len(role.Keyspaces) != 1 {
		t.Errorf("it tells %v, %v", user, role)
	}
	of.state, _, err = state.Change(&storepb.AuthChange{Change: &storepb.AuthChange_UserDelete{
		UserDelete: &storepb.UserDelete{Name: "u"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := told.update(); err != nil || len(sent) != 2 || sent[1].Answers != 2 || of.reads != 2 ||
		len(sent[1].Users) != 1 || sent[1].Users[0].Record != nil || len(sent[1].Roles) != 0 {
		t.Errorf("it tells of a deletion %v, %v", sent, err)
	}
}
