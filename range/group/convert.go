package group

import (
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// outbound makes a peer message of a Raft message. Entry data is shared.
func outbound(group keys.PartitionID, m *raftpb.Message) *peerpb.RaftMessage {
	p := &peerpb.RaftMessage{
		Group: uint64(group), Type: uint32(m.GetType()), To: m.GetTo(), From: m.GetFrom(),
		Term:    m.GetTerm(),
		LogTerm: m.GetLogTerm(), Index: m.GetIndex(), Commit: m.GetCommit(), Vote: m.GetVote(),
		Reject: m.GetReject(), RejectHint: m.GetRejectHint(), Context: m.GetContext(),
	}
	if n := len(m.Entries); n > 0 {
		boxes := make([]peerpb.Entry, n)
		p.Entries = make([]*peerpb.Entry, n)
		for i, e := range m.Entries {
			b := &boxes[i]
			b.Term, b.Index, b.Type, b.Data = e.GetTerm(), e.GetIndex(), uint32(e.GetType()), e.Data
			p.Entries[i] = b
		}
	}
	if meta := m.GetSnapshot().GetMetadata(); meta != nil {
		conf, err := proto.Marshal(meta.GetConfState())
		if err == nil {
			p.Snapshot = &peerpb.SnapshotMeta{Index: meta.GetIndex(), Term: meta.GetTerm(),
				ConfState: conf}
		}
	}
	return p
}

// message and entry hold the values to which raftpb's pointers point, so that each takes one
// allocation.
type message struct {
	raftpb.Message
	kind                                                     raftpb.MessageType
	to, from, term, logTerm, index, commit, vote, rejectHint uint64
	reject                                                   bool
}

type entry struct {
	raftpb.Entry
	kind        raftpb.EntryType
	term, index uint64
}

// readContext is the length of a heartbeat's context. Such a heartbeat confirms the leadership for
// a read index.
const readContext = 8

// inbound makes a Raft message of a peer message that is well-formed. Entry data is shared.
func inbound(p *peerpb.RaftMessage) *raftpb.Message {
	m := &message{
		kind: raftpb.MessageType(p.GetType()), to: p.GetTo(), from: p.GetFrom(), term: p.GetTerm(),
		logTerm: p.GetLogTerm(),
		index:   p.GetIndex(), commit: p.GetCommit(), vote: p.GetVote(),
		rejectHint: p.GetRejectHint(), reject: p.GetReject(),
	}
	m.Type, m.To, m.From, m.Term, m.LogTerm, m.Index = &m.kind, &m.to, &m.from, &m.term, &m.logTerm,
		&m.index
	m.Commit, m.RejectHint, m.Reject = &m.commit, &m.rejectHint, &m.reject
	if m.vote != 0 {
		m.Vote = &m.vote
	}
	if len(p.GetContext()) > 0 {
		m.Context = p.GetContext()
	}
	if n := len(p.GetEntries()); n > 0 {
		boxes := make([]entry, n)
		m.Entries = make([]*raftpb.Entry, n)
		for i, e := range p.GetEntries() {
			b := &boxes[i]
			b.kind, b.term, b.index = raftpb.EntryType(e.GetType()), e.GetTerm(), e.GetIndex()
			b.Type, b.Term, b.Index, b.Data = &b.kind, &b.term, &b.index, e.GetData()
			m.Entries[i] = &b.Entry
		}
	}
	if s := p.GetSnapshot(); s != nil {
		conf := &raftpb.ConfState{}
		_ = proto.Unmarshal(s.GetConfState(), conf) // it was decoded before
		index, term := s.GetIndex(), s.GetTerm()
		m.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &index, Term: &term,
			ConfState: conf}}
	}
	return &m.Message
}
