//go:build planted && planted_record_revived

package planted

const active = RecordRevived
