package imports

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// State is the state into which the import is written, with all steps so far.
type State interface {
	// HasEvent reports whether a revision has a change with a number.
	HasEvent(revision uint64, number uint32) (bool, error)
	// HasLease reports whether a lease exists.
	HasLease(id int64) (bool, error)
}

// Refusal is the reason why a step has no effect.
type Refusal struct {
	Code    storepb.Code
	Message string
}

func refusal(code storepb.Code, format string, args ...any) *Refusal {
	return &Refusal{code, fmt.Sprintf(format, args...)}
}

// UnderWay reports whether an import has begun and not ended. record is the latest import's, nil if
// there was none.
func UnderWay(record *storepb.ImportRecord) bool { return record != nil && !record.Done }

// Next returns the record of a step that follows a record; the record itself is not changed. nil
// without a refusal means that the step was already done. The caller passes the result to Check.
func Next(record *storepb.ImportRecord, m *storepb.Import) (*storepb.ImportRecord, *Refusal) {
	underWay := UnderWay(record)
	switch {
	case record != nil && record.Id == m.Id && m.Step <= record.Step:
		return nil, nil
	case underWay && record.Id != m.Id:
		return nil, refusal(storepb.Code_IMPORTING, "it is not this one")
	case !underWay && m.Step != 1, underWay && m.Step != record.Step+1:
		return nil, refusal(storepb.Code_INVALID, "step %d of an import comes after step %d", m.Step,
			record.GetStep())
	case !underWay:
		record = &storepb.ImportRecord{Id: m.Id, Revision: m.Revision, Source: m.Source}
	default:
		record = proto.Clone(record).(*storepb.ImportRecord)
	}
	record.Step = m.Step
	return record, nil
}

// Check checks that the leases and versions of a step can follow those before, and adds them to the
// record that Next has returned for the step. An error is an error of the state.
func Check(s State, m *storepb.Import, record *storepb.ImportRecord) (*Refusal, error) {
	leases := map[int64]bool{}
	for _, l := range m.Leases {
		if l.GetId() == 0 || l.TtlMillis == 0 || l.TtlMillis > command.MaxLeaseMillis ||
			l.LeftMillis > l.TtlMillis ||
			record.Leases > 0 && uint64(l.Id) <= uint64(record.LastLease) {
			return refusal(storepb.Code_INVALID, "lease %d, after lease %d", l.GetId(),
				record.LastLease), nil
		}
		record.Leases, record.LastLease = record.Leases+1, l.Id
		leases[l.Id] = true
	}
	changes := map[uint32]bool{}
	for _, v := range m.Versions {
		switch {
		case !sound(v, record):
			return refusal(storepb.Code_INVALID, "key %s at revision %d", keys.Pretty(v.GetKey()),
				v.GetModRevision()), nil
		case v.ModRevision == record.Revision:
			exists, err := s.HasEvent(v.ModRevision, v.Number)
			if err != nil {
				return nil, err
			}
			if exists || changes[v.Number] {
				return refusal(storepb.Code_INVALID, "change %d of revision %d comes twice", v.Number,
					v.ModRevision), nil
			}
			changes[v.Number] = true
			record.Changes, record.HighestChange = record.Changes+1, max(record.HighestChange, v.Number)
		}
		if v.Lease != 0 && !leases[v.Lease] {
			exists, err := s.HasLease(v.Lease)
			if err != nil {
				return nil, err
			}
			if !exists {
				return refusal(storepb.Code_LEASE_NOT_FOUND, "lease %d of key %s", v.Lease,
					keys.Pretty(v.Key)), nil
			}
			leases[v.Lease] = true
		}
		record.Versions, record.LastKey = record.Versions+1, v.Key
	}
	if m.End && record.Changes > 0 && uint64(record.HighestChange)+1 != record.Changes {
		return refusal(storepb.Code_INVALID, "revision %d has %d changes, and one of number %d",
			record.Revision, record.Changes, record.HighestChange), nil
	}
	record.Done = m.End
	return nil, nil
}

// sound reports whether a version can be the next version of an import.
func sound(v *storepb.ImportedVersion, record *storepb.ImportRecord) bool {
	switch {
	case len(v.GetKey()) == 0, bytes.Compare(v.Key, record.LastKey) <= 0:
		return false
	case v.Version == 0:
		return v.ModRevision == record.Revision && v.CreateRevision == 0 && v.Lease == 0 &&
			len(v.Value) == 0
	}
	return v.CreateRevision > 0 && v.CreateRevision <= v.ModRevision &&
		v.ModRevision <= record.Revision
}
