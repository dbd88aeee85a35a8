def test_small_peaks_do_not_count(triton_model):
    assert triton_model("peaks").infer(SIGNAL=[0, 9, 0, 0.5, 0, 8, 0])["PLACES"].tolist() == [1, 5]


def test_a_rising_signal_has_no_peak(triton_model):
    assert triton_model("peaks").infer(SIGNAL=[1, 2, 3])["PLACES"].tolist() == []
