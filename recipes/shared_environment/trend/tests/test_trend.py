def test_one_wild_value_does_not_matter(triton_model):
    assert triton_model("trend").infer(SIGNAL=[0, 2, 4, 600, 8, 10])["SLOPE"].tolist() == [2]


def test_one_value_has_no_slope(triton_model):
    assert triton_model("trend").infer(SIGNAL=[5])["SLOPE"].tolist() == [0]
