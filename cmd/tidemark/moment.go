package main

import (
	"context"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/kv"
)

// momentFlag is a moment of the command line, which may be a time ago.
type momentFlag struct {
	text   string
	moment argument.Moment
}

// given says that there is one.
func (f *momentFlag) given() bool { return f.text != "" }

// parse reads the flag, before anything is asked of a cluster.
func (f *momentFlag) parse() (err error) {
	if f.given() {
		f.moment, err = argument.ParseMoment(f.text)
	}
	return err
}

// at is the timestamp. A time ago is measured from the clocks of the cluster: that of this machine
// may be wrong, and what is read would be older or newer than was asked for.
func (f *momentFlag) at(ctx context.Context, client *kv.Client) (kv.Timestamp, error) {
	var now kv.Timestamp
	if f.moment.Relative() {
		var err error
		if now, err = client.Now(ctx); err != nil {
			return kv.Timestamp{}, err
		}
	}
	return f.moment.At(now)
}
