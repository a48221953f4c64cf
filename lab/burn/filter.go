package burn

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// From include/uapi/linux/pkt_sched.h and pkt_cls.h.
const (
	tcHClsact      = 0xFFFFFFF1 // TC_H_CLSACT, the parent of the clsact qdisc
	tcHIngress     = 0xFFFFFFF2 // TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)
	clsactHandle   = 0xFFFF0000
	tcaKind        = 1
	tcaOptions     = 2
	tcaBPFFD       = 6
	tcaBPFName     = 7
	tcaBPFFlags    = 8
	bpfActDirect   = 1 // TCA_BPF_FLAG_ACT_DIRECT: the program's return code is the verdict
	filterPriority = 49152
	sizeofTcmsg    = 20
)

// filter is a cls_bpf filter at clsact ingress, for kernels without tcx.
type filter struct {
	conn     *netlink.Conn // of the namespace it was dialled in
	ifindex  int
	ownQdisc bool
}

func addFilter(ifindex, progFD int) (*filter, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, err
	}
	f := &filter{conn: conn, ifindex: ifindex}
	attrs, err := encode(func(e *netlink.AttributeEncoder) { e.String(tcaKind, "clsact") })
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	err = f.request(unix.RTM_NEWQDISC, netlink.Create|netlink.Excl, clsactHandle, tcHClsact, 0, attrs)
	switch {
	case err == nil:
		f.ownQdisc = true
	case !errors.Is(err, unix.EEXIST):
		return nil, errors.Join(fmt.Errorf("add clsact: %w", err), conn.Close())
	}
	attrs, err = encode(func(e *netlink.AttributeEncoder) {
		e.String(tcaKind, "bpf")
		e.Nested(tcaOptions, func(n *netlink.AttributeEncoder) error {
			n.Uint32(tcaBPFFD, uint32(progFD))
			n.String(tcaBPFName, "rxburn")
			n.Uint32(tcaBPFFlags, bpfActDirect)
			return nil
		})
	})
	if err == nil {
		err = f.request(unix.RTM_NEWTFILTER, netlink.Create|netlink.Excl, 1, tcHIngress, filterInfo, attrs)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("add cls_bpf filter: %w", err), f.removeQdisc(), conn.Close())
	}
	return f, nil
}

// filterInfo is tcm_info of a filter: priority in the upper half, the Ethernet
// protocol (all) in network order in the lower.
const filterInfo = filterPriority<<16 | (unix.ETH_P_ALL&0xff)<<8 | unix.ETH_P_ALL>>8

// Close removes the filter, and the qdisc if we made it. A device that is gone
// took both with it.
func (f *filter) Close() error {
	err := f.request(unix.RTM_DELTFILTER, 0, 1, tcHIngress, filterInfo, nil)
	if errors.Is(err, unix.ENODEV) {
		err = nil
	}
	return errors.Join(err, f.removeQdisc(), f.conn.Close())
}

func (f *filter) removeQdisc() error {
	if !f.ownQdisc {
		return nil
	}
	err := f.request(unix.RTM_DELQDISC, 0, clsactHandle, tcHClsact, 0, nil)
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// request sends a struct tcmsg (include/uapi/linux/rtnetlink.h) with attributes.
func (f *filter) request(typ netlink.HeaderType, flags netlink.HeaderFlags, handle, parent, info uint32, attrs []byte) error {
	msg := make([]byte, sizeofTcmsg, sizeofTcmsg+len(attrs))
	binary.NativeEndian.PutUint32(msg[4:], uint32(f.ifindex))
	binary.NativeEndian.PutUint32(msg[8:], handle)
	binary.NativeEndian.PutUint32(msg[12:], parent)
	binary.NativeEndian.PutUint32(msg[16:], info)
	_, err := f.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Acknowledge | flags},
		Data:   append(msg, attrs...),
	})
	return err
}

func encode(fill func(*netlink.AttributeEncoder)) ([]byte, error) {
	e := netlink.NewAttributeEncoder()
	fill(e)
	return e.Encode()
}
