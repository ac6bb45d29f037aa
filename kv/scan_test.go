package kv

import "iter"

// drain reads a scan to its end.
func drain(rows iter.Seq2[Pair, error]) (all []Pair, err error) {
	for p, err := range rows {
		if err != nil {
			return all, err
		}
		all = append(all, p)
	}
	return all, nil
}
