package mvcc

import "github.com/tidemarkdb/tidemark/hlc"

// A version with an expiry acts like a value and, at the expiry, a tombstone: a read at or above
// the expiry finds the key without a value, and does not look at older versions; a read below finds
// the value. The timestamp of the read decides, never a clock. So the answer at a timestamp is the
// same on every replica, now and later.
//
// Nothing is written when a version expires. So a check whether a key changed between two
// timestamps (ScanOptions.Uncertain, Getter.ViewUncertain) counts an expiry between them as a
// change.

// ExpiredAt reports whether v has a value that has expired for reads at a timestamp.
func (v *Version) ExpiredAt(at hlc.Timestamp) bool { return v.Expires != 0 && v.Expires <= at.Wall }

// LiveAt reports whether v is a value that a read at a timestamp sees. The timestamp must not be
// below the version's.
func (v *Version) LiveAt(at hlc.Timestamp) bool {
	return v.Kind == KindValue && !v.ExpiredAt(at)
}

// asOf changes v, if it has expired at a timestamp, to the KindExpired version that a read there
// returns.
func (v *Version) asOf(at hlc.Timestamp) {
	if v.ExpiredAt(at) {
		v.Kind, v.Value = KindExpired, nil
	}
}

// expiresWithin returns when v expires, if v is live at a timestamp and expires above it, at or
// below a limit.
func (v *Version) expiresWithin(at, limit hlc.Timestamp) (hlc.Timestamp, bool) {
	expiry := hlc.Timestamp{Wall: v.Expires}
	return expiry, v.Expires != 0 && at.Less(expiry) && expiry.LessEq(limit)
}
