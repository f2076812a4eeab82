// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Node is the report of a simulated kubelet.
type Node struct {
	Name, ProviderID, MachineID, Address, Version string
	// LeaseSeconds is the duration of its lease.
	LeaseSeconds int32
	// Silent nodes neither renew their lease nor touch their pods.
	Silent bool
}

// MachineID derives a stable machine ID from a name.
func MachineID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// Address derives a stable private address from a name.
func Address(network byte, name string) string {
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("10.%d.%d.%d", network, sum[0], 1+sum[1]%250)
}

func (n Node) object() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{
			corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}},
		Spec: corev1.NodeSpec{ProviderID: n.ProviderID},
	}
}

func (n Node) status(now metav1.Time) corev1.NodeStatus {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
	condition := func(t corev1.NodeConditionType, s corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: t, Status: s, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	return corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Conditions: []corev1.NodeCondition{
			condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
			condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
			condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
			condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
		},
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: n.Address}, {Type: corev1.NodeHostName, Address: n.Name},
		},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: n.MachineID, SystemUUID: n.MachineID, BootID: MachineID("boot/" + n.Name),
			KubeletVersion: n.Version, ContainerRuntimeVersion: "simulated://1.0.0", KernelVersion: "simulated",
			OSImage: "simulated", OperatingSystem: "linux", Architecture: "amd64",
		},
	}
}

func (n Node) lease(owner *corev1.Node, now time.Time) *coordinationv1.Lease {
	renewed := metav1.NewMicroTime(now)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceNodeLease, Name: n.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: owner.Name, UID: owner.UID}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &n.Name, LeaseDurationSeconds: &n.LeaseSeconds, RenewTime: &renewed},
	}
}
